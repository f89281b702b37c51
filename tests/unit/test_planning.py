"""Tests of plans: the window, the grace, each policy, runs left, and long outages."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Trigger, cron, every, once
from duly.model.index_rows import MAX_MISSED, IndexRow, policies_text, trigger_text
from duly.model.ledger import LEDGER_TRANSITIONS, OccurrenceState
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.planning import MAX_PLANNED, Plan, PlannedOccurrence, plan, plan_many, policies_of
from duly.triggers.instants import to_ms

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
NOW_MS = to_ms(NOW)
SECOND = 1_000
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MINUTELY = every(minutes=1, start_at=NOW)
HOURLY = every(hours=1, start_at=NOW)
SKIP = Policies(misfire=Misfire("skip"))
PLANNED, MISSED = OccurrenceState.PLANNED, OccurrenceState.MISSED


def row_of(trigger: Trigger, policies: Policies | None = None, **fields: Any) -> IndexRow:
    """Return the row at the first time of a trigger from NOW on."""
    nominal = trigger.next_after_ms(NOW_MS - 1)
    assert nominal is not None
    values: dict[str, Any] = {
        "schedule_id": ScheduleId("sch_1"),
        "flow": "mail",
        "scope": "user:u",
        "name": "n",
        "trigger": trigger_text(trigger),
        "nominal_ms": nominal,
        "run_at_ms": nominal + trigger.offset_ms,
        "policies": policies_text(policies or Policies()),
    }
    return IndexRow(**values | fields)


def planned(row: IndexRow, later_ms: int, ahead_ms: int = MINUTE) -> Plan:
    """Return the plan of a row some time after NOW; `plan` and `plan_many` must agree."""
    now_ms = NOW_MS + later_ms
    made = plan(row, now_ms, now_ms + ahead_ms, policies_of(row.policies))
    assert plan_many([row], now_ms, now_ms + ahead_ms) == [made]
    return made


def runs(made: Plan) -> list[int]:
    """Return the nominal times that run, since NOW."""
    return [each.nominal_ms - NOW_MS for each in made.occurrences if each.state is PLANNED]


def missed(made: Plan) -> list[tuple[int, int, int]]:
    """Return the ranges of missed times, since NOW."""
    return [
        (each.nominal_ms - NOW_MS, each.until_ms - NOW_MS, each.count)
        for each in made.occurrences
        if each.state is MISSED
    ]


def following(made: Plan) -> int | None:
    return None if made.next_nominal_ms is None else made.next_nominal_ms - NOW_MS


# The window.


def test_one_time_in_the_window() -> None:
    row = row_of(HOURLY)
    made = PlannedOccurrence(row.schedule_id, NOW_MS, NOW_MS, 1, NOW_MS, PLANNED, None)
    assert planned(row, -MINUTE) == Plan((made,), NOW_MS + HOUR, NOW_MS + HOUR, None, None)


@pytest.mark.parametrize(
    ("later", "expected"),
    [(-MINUTE - 1, []), (-MINUTE, [0]), (0, [0, MINUTE]), (MINUTE - 1, [0, MINUTE])],
)
def test_the_window_ends_with_the_look_ahead(later: int, expected: list[int]) -> None:
    made = planned(row_of(MINUTELY), later)
    assert (runs(made), following(made)) == (expected, len(expected) * MINUTE)


def test_all_times_of_the_window_are_made() -> None:
    """B13: an interval shorter than the period of the planner does not fall behind."""
    made = planned(row_of(every(seconds=5, start_at=NOW)), 0)
    assert runs(made) == [5 * SECOND * k for k in range(13)]
    assert following(made) == 65 * SECOND


def test_a_row_plans_up_to_the_limit_and_stays_due() -> None:
    row = row_of(every(seconds=1, start_at=NOW))
    made = planned(row, 0, ahead_ms=HOUR)
    assert runs(made) == [SECOND * k for k in range(MAX_PLANNED)]
    assert following(made) == SECOND * MAX_PLANNED
    assert made.next_nominal_ms is not None
    rest = replace(row, nominal_ms=made.next_nominal_ms, run_at_ms=made.next_nominal_ms)
    assert runs(planned(rest, 0, ahead_ms=HOUR))[0] == SECOND * MAX_PLANNED


def test_start_and_end_come_from_the_trigger() -> None:
    ending = every(hours=1, start_at=NOW, end_at=NOW + timedelta(hours=1))
    made = planned(row_of(ending), HOUR, ahead_ms=DAY)
    assert (missed(made), runs(made), following(made)) == ([(0, 0, 1)], [HOUR], None)
    assert planned(row_of(once(NOW)), 0)[1:] == (None, None, None, None)


# Run time is nominal time plus spread; the identity is the nominal time.

SPREAD = cron("0 * * * *", spread=timedelta(minutes=50)).bind("key", NOW)


def test_the_spread_moves_run_times_only() -> None:
    row = row_of(SPREAD)
    offset = SPREAD.offset_ms
    assert offset > 2 * MINUTE
    early = planned(row, offset - MINUTE - 1)
    assert (early.occurrences, early.next_nominal_ms) == ((), row.nominal_ms)
    made = planned(row, offset - MINUTE)
    assert [(each.nominal_ms, each.run_at_ms) for each in made.occurrences] == [
        (NOW_MS, NOW_MS + offset)
    ]
    assert (made.next_nominal_ms, made.next_run_at_ms) == (NOW_MS + HOUR, NOW_MS + HOUR + offset)


def test_the_grace_begins_at_the_run_time() -> None:
    row, offset = row_of(SPREAD, SKIP), SPREAD.offset_ms
    assert runs(planned(row, offset + MINUTE)) == [0]
    assert missed(planned(row, offset + MINUTE + 1)) == [(0, 0, 1)]


# Misfires.


@pytest.mark.parametrize("kind", ["run_once", "skip", "catch_up"])
@pytest.mark.parametrize("later", [-MINUTE, 0, 1, MINUTE])
def test_on_time_always_runs(kind: Any, later: int) -> None:
    """B72: a schedule that skips misfires still runs when it is on time."""
    made = planned(row_of(HOURLY, Policies(misfire=Misfire(kind))), later)
    (only,) = made.occurrences
    assert (only.state, only.run_at_ms, only.reason) == (PLANNED, NOW_MS, None)


@pytest.mark.parametrize(
    ("grace_ms", "later", "late"),
    [(0, 0, 0), (0, 1, 1), (MINUTE, MINUTE, 0), (MINUTE, MINUTE + 1, 1), (DAY, DAY, 0)],
)
def test_a_misfire_is_later_than_its_grace(grace_ms: int, later: int, late: int) -> None:
    policies = Policies(grace_ms=grace_ms, misfire=Misfire("skip"))
    assert len(missed(planned(row_of(HOURLY, policies), later))) == late


@pytest.mark.parametrize(
    ("misfire", "swallowed", "late"),
    [
        (Misfire("run_once"), (0, 59, 60), []),
        (Misfire("skip"), (0, 59, 60), []),
        (Misfire("catch_up", limit=5), (0, 54, 55), [55, 56, 57, 58, 59]),
        (Misfire("catch_up", limit=60), None, list(range(60))),
        (Misfire("catch_up", limit=61), None, list(range(60))),
        (Misfire("catch_up", limit=59), (0, 0, 1), list(range(1, 60))),
        (Misfire("catch_up", max_age_ms=2 * MINUTE + 30_000), (0, 57, 58), [58, 59]),
        (Misfire("catch_up", max_age_ms=MINUTE), (0, 59, 60), []),
    ],
)
def test_an_hour_of_outage(
    misfire: Misfire, swallowed: tuple[int, int, int] | None, late: list[int]
) -> None:
    """R243 to R245, B20, B40, B73, C18: one plan decides on the outage; later ones plan ahead."""
    made = planned(row_of(MINUTELY, Policies(misfire=misfire)), 60 * MINUTE + 30_000, 0)
    assert [ms // MINUTE for ms in runs(made)] == [*late, 60]  # the last is on time
    expected = [] if swallowed is None else [swallowed]
    assert [(a // MINUTE, b // MINUTE, n) for a, b, n in missed(made)] == expected
    assert following(made) == 61 * MINUTE
    reasons = [each.reason for each in made.occurrences]
    assert reasons == [misfire.kind] * (len(late) + len(expected)) + [None]


@pytest.mark.parametrize(
    ("later", "ahead", "swallowed", "ran"),
    [
        # The third hour is on time and due, so it runs.
        (3 * HOUR, 0, (0, 2, 3), [(3, None)]),
        (3 * HOUR + MINUTE, 0, (0, 2, 3), [(3, None)]),
        # It is late too, so the latest misfire runs.
        (3 * HOUR + MINUTE + 1, 0, (0, 2, 3), [(3, "run_once")]),
        # It is on time but not due yet; a misfire does not wait for it.
        (3 * HOUR - 1, 0, (0, 1, 2), [(2, "run_once")]),
        (3 * HOUR - 1, MINUTE, (0, 1, 2), [(2, "run_once"), (3, None)]),
        # Only one is late, and the next one is due.
        (HOUR, 0, (0, 0, 1), [(1, None)]),
    ],
)
def test_run_once_runs_one(
    later: int, ahead: int, swallowed: tuple[int, int, int], ran: list[tuple[int, str | None]]
) -> None:
    """R243: after an outage one occurrence runs, not two. It is the one on time if there is one."""
    made = planned(row_of(HOURLY), later, ahead)
    assert [(a // HOUR, b // HOUR, n) for a, b, n in missed(made)] == [swallowed]
    jobs = [each for each in made.occurrences if each.state is PLANNED]
    assert [((each.nominal_ms - NOW_MS) // HOUR, each.reason) for each in jobs] == ran


def test_run_once_uses_the_run_time() -> None:
    """A nominal time in the past is not due before its run time, which includes the spread."""
    row, offset = row_of(SPREAD), SPREAD.offset_ms
    assert runs(planned(row, HOUR + offset - 1, 0)) == [0]
    assert runs(planned(row, HOUR + offset, 0)) == [HOUR]


def test_the_age_of_a_misfire_begins_at_the_run_time() -> None:
    for age, late in ((9 * MINUTE, [0]), (9 * MINUTE - 1, [])):
        misfire = Misfire("catch_up", max_age_ms=age)
        row = row_of(SPREAD, Policies(misfire=misfire))
        assert runs(planned(row, SPREAD.offset_ms + 9 * MINUTE, 0)) == late


def test_states_are_those_a_new_row_may_have() -> None:
    made = planned(row_of(MINUTELY), DAY)
    assert {each.state for each in made.occurrences} <= LEDGER_TRANSITIONS[None]


# Runs left.


@pytest.mark.parametrize(
    ("runs_left", "expected", "left", "is_finished"),
    [
        (3, [0, 20, 40], 0, True),
        (4, [0, 20, 40, 60], 0, True),
        (5, [0, 20, 40, 60], 1, False),
        (1, [0], 0, True),
        (0, [], 0, True),
    ],
)
def test_runs_are_charged_when_planned(
    runs_left: int, expected: list[int], left: int, is_finished: bool
) -> None:
    made = planned(row_of(every(seconds=20, start_at=NOW), runs_left=runs_left), 0)
    assert [ms // SECOND for ms in runs(made)] == expected
    assert (made.runs_left, made.next_nominal_ms is None) == (left, is_finished)
    assert made.error is None


@pytest.mark.parametrize(
    ("misfire", "runs_left", "expected", "left"),
    [
        (Misfire("skip"), 1, [10], 0),
        (Misfire("skip"), 2, [10], 1),
        (Misfire("run_once"), 1, [10], 0),
        (Misfire("run_once"), 2, [10], 1),
        (Misfire("catch_up", limit=3), 2, [8, 9], 0),
        (Misfire("catch_up", limit=3), 4, [7, 8, 9, 10], 0),
        (Misfire("catch_up", limit=3), 9, [7, 8, 9, 10], 5),
    ],
)
def test_missed_times_are_not_charged(
    misfire: Misfire, runs_left: int, expected: list[int], left: int
) -> None:
    row = row_of(HOURLY, Policies(misfire=misfire), runs_left=runs_left)
    made = planned(row, 10 * HOUR)
    assert [ms // HOUR for ms in runs(made)] == expected
    assert (made.runs_left, made.next_nominal_ms is None) == (left, left == 0)


# Long outages.

EVERY_SECOND = cron("* * * * * *", seconds=True)
YEAR = 365 * DAY


def test_an_interval_is_counted_exactly() -> None:
    made = planned(row_of(every(seconds=1, start_at=NOW), SKIP), YEAR, 0)
    last = YEAR - MINUTE - SECOND
    assert missed(made) == [(0, last, last // SECOND + 1)]
    assert runs(made) == list(range(YEAR - MINUTE, YEAR + 1, SECOND))


def test_other_rules_are_counted_up_to_a_limit() -> None:
    made = planned(row_of(EVERY_SECOND), YEAR, 0)
    last = YEAR - MINUTE - SECOND
    assert missed(made) == [(0, last, MAX_MISSED)]
    assert runs(made)[:2] == [last + SECOND, last + 2 * SECOND]


@pytest.mark.parametrize(
    "trigger",
    [
        EVERY_SECOND,
        cron("* * * 3 * *", seconds=True),
        cron("* * 2 29 2 *", seconds=True, tz="Europe/Berlin"),
        cron("0 9 * * MON"),
    ],
    ids=lambda each: each.expression,
)
@pytest.mark.parametrize("limit", [1, 10, 1_000])
def test_the_newest_times_are_found_without_listing_all(trigger: Trigger, limit: int) -> None:
    policies = Policies(misfire=Misfire("catch_up", limit=limit), grace_ms=0)
    now_ms = NOW_MS + 10 * YEAR + 17 * HOUR
    # Stepping through a decade by the second would exceed the time limit of the test.
    made = plan(row_of(trigger), now_ms, now_ms, policies)
    swallowed, *late = [each for each in made.occurrences if each.reason == "catch_up"]
    assert (swallowed.state, swallowed.nominal_ms) == (MISSED, row_of(trigger).nominal_ms)
    times = [swallowed.until_ms, *(NOW_MS + ms for ms in runs(made)), made.next_nominal_ms]
    found: int | None = swallowed.until_ms - 1
    for ms in times:
        assert found is not None
        found = trigger.next_after_ms(found)
        assert ms == found
    assert found is not None
    assert found > now_ms
    oldest_ms = now_ms - swallowed.until_ms
    assert len(late) == limit or oldest_ms > policies.misfire.max_age_ms


def test_a_row_off_its_rule_is_planned() -> None:
    """After a change of zone data, a row may have a time that its trigger does not have."""
    row = row_of(HOURLY, nominal_ms=NOW_MS + 5, run_at_ms=NOW_MS + 5)
    assert (runs(planned(row, 0)), following(planned(row, 0))) == ([5], HOUR)
    made = planned(row, 3 * HOUR - 1, 0)
    assert (missed(made), runs(made)) == ([(5, HOUR, 2)], [2 * HOUR])
