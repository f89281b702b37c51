"""Tests of the counting of runs for `max_runs`."""

from dataclasses import dataclass

import pytest
from tests.why_samples import NOW

from duly.model.index_rows import trigger_text
from duly.model.ledger import OccurrenceState
from duly.model.schedules import Definition, ScheduleId
from duly.rules.planning import Plan, PlannedOccurrence
from duly.rules.runs import count_of, runs_after_edit, runs_left, settle
from duly.triggers import every
from duly.triggers.instants import to_ms

HOUR_MS = 3_600_000
NOW_MS = to_ms(NOW)
HOURLY = every(hours=1, start_at=NOW)
ID = ScheduleId("s")


@dataclass(frozen=True)
class Row:
    runs_left: int | None
    schedule_id: ScheduleId = ID
    trigger: str = trigger_text(HOURLY)
    policies: str = "{}"
    nominal_ms: int = NOW_MS
    run_at_ms: int = NOW_MS + 5


def plan_of(times: int, left: int | None, *, is_over: bool, error: str | None = None) -> Plan:
    """Return a plan of the next times of the row."""
    hours = [NOW_MS + hour * HOUR_MS for hour in range(times)]
    state = OccurrenceState.PLANNED
    made = tuple(PlannedOccurrence(ID, ms, ms, 1, ms + 5, state, None) for ms in hours)
    following = None if is_over else NOW_MS + times * HOUR_MS
    return Plan(made, following, None if following is None else following + 5, left, error)


@pytest.mark.parametrize(
    ("most", "had", "left"),
    [(None, None, None), (None, 7, None), (3, None, 3), (3, 0, 3), (3, 3, 0), (3, 5, 0)],
)
def test_runs_left_is_the_limit_minus_the_runs_had(
    most: int | None, had: int | None, left: int | None
) -> None:
    assert runs_left(most, had) == left


@pytest.mark.parametrize(
    ("stored", "row_left", "in_ledger", "expected"),
    [
        (2, None, 9, 2),
        (0, None, 9, 0),
        (None, None, 4, 4),
        (2, 8, 9, 2),
        (2, 5, 9, 5),
        (2, 20, 9, 2),
        (None, 7, 9, 3),
    ],
    ids=[
        "the stored count",
        "none were had",
        "the ledger, where nothing is stored",
        "row and document agree",
        "a release without the count charged the row",
        "a row that says too much",
        "the row, where nothing is stored",
    ],
)
def test_count_of_a_schedule(
    stored: int | None, row_left: int | None, in_ledger: int, expected: int
) -> None:
    assert count_of(10, stored, row_left, in_ledger) == expected


@pytest.mark.parametrize(
    ("old", "had", "new", "withdrawn", "expected"),
    [
        (5, 3, 5, 0, 3),
        (5, 3, 9, 0, 3),
        (5, 3, 1, 0, 3),
        (5, 3, 5, 2, 1),
        (5, 1, 5, 2, 0),
        (None, None, 5, 2, 0),
        (5, 3, None, 0, None),
    ],
)
def test_count_after_an_edit(
    old: int | None, had: int | None, new: int | None, withdrawn: int, expected: int | None
) -> None:
    before = Definition(trigger=HOURLY, action="a", max_runs=old)
    after = Definition(trigger=HOURLY, action="a", max_runs=new)
    assert runs_after_edit(before, had, after, withdrawn) == expected


def test_plans_handed_over_completely_do_not_change() -> None:
    for row, made in (
        (Row(None), plan_of(2, None, is_over=False)),
        (Row(3), plan_of(2, 1, is_over=False)),
        (Row(2), plan_of(2, 0, is_over=True)),
    ):
        assert settle(row, made, 2) == made


def test_occurrences_already_in_the_ledger_are_not_charged() -> None:
    made = settle(Row(5), plan_of(3, 2, is_over=False), 1)
    assert (made.runs_left, made.next_nominal_ms) == (4, NOW_MS + 3 * HOUR_MS)


def test_a_row_with_unused_runs_continues() -> None:
    made = settle(Row(2), plan_of(2, 0, is_over=True), 1)
    following = NOW_MS + 2 * HOUR_MS
    assert (made.runs_left, made.next_nominal_ms) == (1, following)
    assert made.next_run_at_ms == following + 5


def test_a_quarantined_row_is_not_charged() -> None:
    made = plan_of(1, 2, is_over=True, error="no")
    assert settle(Row(2), made, 0) == made
