"""Tests of coverage, which compares ledger and rule, and of the history of a schedule."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import cron, every, once, weekly
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.ledger_counts import Lateness, LedgerCount, LedgerSummary
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import Definition, Schedule, ScheduleId
from duly.model.scopes import SYSTEM
from duly.operate.coverage import Percentiles, measure, percentiles
from duly.operate.why.history import MAX_COUNTED, count_times, is_time, last_before, stretches
from duly.triggers import Trigger
from duly.triggers.instants import END_MS, to_ms

DAY = datetime(2026, 3, 2, tzinfo=UTC)
DAY_MS = to_ms(DAY)
HOUR_MS = 3_600_000
HOURLY = cron("0 * * * *")
S = OccurrenceState


def hour(number: float) -> int:
    return DAY_MS + int(number * HOUR_MS)


def a_schedule(state: Any = "active", trigger: Trigger = HOURLY) -> Schedule:
    definition = Definition(trigger, "a")
    return Schedule(ScheduleId("s"), "crm", SYSTEM, "x", definition, state, 1, hour(0.5), hour(0.5))


def an_event(kind: Any, at: float, **detail: Any) -> ScheduleEvent:
    return ScheduleEvent(ScheduleId("s"), kind, hour(at), "ada", detail)


BORN = an_event("created", 0.5)
PAUSED = (BORN, an_event("paused", 4.5), an_event("resumed", 8.5))


def test_history_is_split_into_intervals() -> None:
    old = cron("30 * * * *")
    events = [*PAUSED, an_event("changed", 10, trigger=old.to_json())]
    life = stretches(a_schedule(), events)
    assert [(each.from_ms, each.to_ms, each.state, each.trigger) for each in life] == [
        (hour(0.5), hour(4.5), "active", old),
        (hour(4.5), hour(8.5), "paused", old),
        (hour(8.5), hour(10), "active", old),
        (hour(10), END_MS, "active", HOURLY),
    ]
    assert life[1].since == events[1]
    assert life[3].since == events[2]


@pytest.mark.parametrize(
    ("kinds", "stored", "states"),
    [
        ([], "active", ["active"]),
        ([], "paused", ["paused"]),
        (["changed"], "paused", ["paused", "paused"]),
        (["resumed"], "active", ["paused", "active"]),
        (["finished"], "finished", ["active", "finished"]),
        (["quarantined", "changed"], "active", ["active", "quarantined", "active"]),
        (["finished", "changed", "paused"], "paused", ["active", "finished", "active", "paused"]),
        (["deleted"], None, ["active", "deleted"]),
        (["paused", "deleted"], None, ["active", "paused", "deleted"]),
    ],
)
def test_states_follow_from_events(kinds: list[str], stored: Any, states: list[str]) -> None:
    events = [BORN, *(an_event(kind, place + 1) for place, kind in enumerate(kinds))]
    life = stretches(None if stored is None else a_schedule(stored), events)
    assert [each.state for each in life] == states


def test_old_events_may_be_gone() -> None:
    life = stretches(a_schedule(), [an_event("resumed", 8.5)])
    assert [(each.from_ms, each.state) for each in life] == [
        (hour(0.5), "paused"),
        (hour(8.5), "active"),
    ]
    assert stretches(None, []) == []


def test_rules_of_a_newer_release_are_unknown() -> None:
    life = stretches(a_schedule(), [BORN, an_event("changed", 2, trigger={"v": 99, "kind": "x"})])
    assert [each.trigger for each in life] == [None, HOURLY]


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (HOURLY, "2026-03-04T11:00Z"),
        (cron("0 0 29 2 *"), "2024-02-29T00:00Z"),
        (cron("* * * * * *", seconds=True), "2026-03-04T11:59:59Z"),
        (every(minutes=90, start_at=DAY), "2026-03-04T10:30Z"),
        (every(seconds=1, start_at=DAY, end_at=DAY + timedelta(hours=1)), "2026-03-02T01:00Z"),
        (every(hours=1, start_at=DAY + timedelta(days=9)), None),
        (once(DAY), "2026-03-02T00:00Z"),
        (once(DAY + timedelta(days=9)), None),
        (weekly({"mon": None}), None),
    ],
)
def test_last_time_before(trigger: Trigger, expected: str | None) -> None:
    asked = to_ms(datetime(2026, 3, 4, 12, tzinfo=UTC))
    wanted = None if expected is None else to_ms(datetime.fromisoformat(expected))
    assert last_before(trigger, asked) == wanted
    if wanted is not None:
        assert is_time(trigger, wanted)
        assert last_before(trigger, wanted + 1) == wanted


def test_times_are_counted() -> None:
    assert count_times(HOURLY, hour(1), hour(3)) == 2
    assert count_times(HOURLY, hour(1) + 1, hour(3) + 1) == 2
    assert count_times(HOURLY, hour(3), hour(3)) == 0
    assert count_times(HOURLY, hour(3), hour(1)) == 0
    second = every(seconds=1, start_at=DAY)
    assert count_times(second, hour(0), hour(1_000)) == 3_600_000
    ending = every(seconds=1, start_at=DAY, end_at=DAY + timedelta(seconds=9))
    assert count_times(ending, hour(0), hour(1)) == 10
    assert count_times(ending, hour(1), hour(2)) == 0
    assert count_times(cron("* * * * * *", seconds=True), hour(0), hour(100)) == MAX_COUNTED


def test_pauses_are_counted_separately() -> None:
    """Hours 1 to 4 and 9 to 12 were expected; hours 5 to 8 are in the pause."""
    summary = LedgerSummary(
        DAY_MS,
        (
            LedgerCount(S.FAILED, None, 1),
            LedgerCount(S.MISSED, None, 2),
            LedgerCount(S.MISSED, "paused", 4),
            LedgerCount(S.SUCCEEDED, None, 5),
            LedgerCount(S.SUCCEEDED, "run_now", 3),
        ),
        (),
        (),
    )
    found = measure(stretches(a_schedule(), PAUSED), summary, hour(24), hour(12))
    assert (found.expected, found.paused, found.fired, found.extras) == (8, 4, 6, 3)
    assert found.share == 0.75
    assert found.states == {"failed": 1, "missed": 6, "succeeded": 5}
    assert (to_ms(found.from_at), to_ms(found.to_at)) == (hour(0.5), hour(12) + 1)


def test_ranges_across_the_window_count_only_times_inside() -> None:
    """Hours 3 to 10 were missed; the window is from 5 to before 8."""
    edge = Occurrence(
        schedule_id=ScheduleId("s"),
        nominal_ms=hour(3),
        until_ms=hour(10),
        count=8,
        run_at_ms=hour(3),
        state=S.MISSED,
        flow="crm",
        scope="system",
        name="x",
    )
    summary = LedgerSummary(hour(5), (), (edge,), ())
    found = measure(stretches(a_schedule(), [BORN]), summary, hour(8), hour(12))
    assert (found.expected, found.fired, found.states) == (3, 0, {"missed": 3})
    assert found.share == 0.0


@pytest.mark.parametrize(
    ("trigger", "succeeded", "expected"),
    [(once(DAY + timedelta(hours=3)), 1, 1), (HOURLY, 3, 3), (HOURLY, 2, 2)],
    ids=["once", "max_runs", "the last was withdrawn"],
)
def test_last_times_after_the_end_are_counted(
    trigger: Trigger, succeeded: int, expected: int
) -> None:
    """The last times were planned a minute ahead, which left nothing to plan."""
    life = stretches(a_schedule("finished", trigger), [BORN, an_event("finished", 2.99)])
    counts = (
        LedgerCount(S.SUCCEEDED, None, succeeded),
        LedgerCount(S.SUCCEEDED, "run_now", 2),
        LedgerCount(S.WITHDRAWN, None, 1),
    )
    found = measure(life, LedgerSummary(DAY_MS, counts, (), ()), hour(24), hour(12))
    assert (found.expected, found.fired, found.share) == (expected, succeeded, 1.0)


def test_coverage_is_none_when_nothing_was_expected() -> None:
    summary = LedgerSummary(hour(20), (), (), ())
    assert measure(stretches(a_schedule(), [BORN]), summary, hour(24), hour(12)).share is None
    assert measure([], summary, hour(24), hour(24)).share is None


def test_percentiles_by_nearest_rank() -> None:
    assert percentiles([]) == Percentiles(0)
    assert percentiles([7]) == Percentiles(1, 7, 7, 7, 7)
    assert percentiles(list(range(1, 201))) == Percentiles(200, 100, 190, 198, 200)
    assert percentiles([-5, 3]) == Percentiles(2, 0, 3, 3, 3)
    summary = LedgerSummary(hour(0), (), (), (Lateness(hour(1), 9), Lateness(hour(0), 1)))
    assert measure([], summary, hour(2), hour(2)).lateness == Percentiles(2, 1, 9, 9, 9)
