"""Tests of ledger values: the transition table, and the times that a row covers."""

import msgspec
import pytest

from duly.model.jobs import JobState
from duly.model.ledger import (
    BACKFILLABLE,
    LEDGER_TRANSITIONS,
    OPEN,
    Occurrence,
    OccurrenceState,
    follow,
    keeps_missing,
    may_go,
    outcome_of,
)
from duly.model.schedules import ScheduleId

# Written by hand from the design. Rows are "from", columns "to"; x allowed, . refused.
STATES = "planned dispatching fired succeeded failed skipped missed withdrawn denied quarantined"
MATRIX = {
    #               pl di fi su fa sk mi wi de qu
    None: "         x  x  x  .  .  x  x  .  x  x",
    "planned": "    .  .  x  .  .  x  x  x  x  .",
    "dispatching": "x  x  x  .  x  x  .  x  x  .",
    "fired": "      .  .  .  x  x  .  .  .  x  .",
    "succeeded": "  .  .  .  .  .  .  .  .  .  .",
    "failed": "     .  .  x  .  .  .  .  .  .  .",
    "skipped": "    x  .  .  .  .  .  .  .  .  .",
    "missed": "     x  .  .  .  .  .  .  .  .  .",
    "withdrawn": "  x  x  .  .  .  x  x  .  .  x",
    "denied": "     .  .  .  .  .  .  .  .  .  .",
    "quarantined": "x  x  .  .  .  x  x  .  .  .",
}


def test_the_transition_table() -> None:
    assert list(OccurrenceState) == STATES.split()
    shown = {
        state: "  ".join("x" if may_go(state, target) else "." for target in OccurrenceState)
        for state in LEDGER_TRANSITIONS
    }
    assert shown == {state: marks.strip() for state, marks in MATRIX.items()}


def test_a_backfill_may_plan_its_occurrences_again() -> None:
    assert all(may_go(state, OccurrenceState.PLANNED) for state in BACKFILLABLE)


def test_succeeded_and_denied_are_final() -> None:
    ended = {state for state, targets in LEDGER_TRANSITIONS.items() if not targets}
    assert ended == {OccurrenceState.SUCCEEDED, OccurrenceState.DENIED}
    assert not ended & OPEN


# Also written by hand: the state of an occurrence after its job enters a state.
FOLLOWED = {
    ("planned", "processing"): "fired",
    ("fired", "succeeded"): "succeeded",
    ("fired", "dead"): "failed",
    ("planned", "cancelled"): "skipped",
    ("fired", "cancelled"): "failed",
    ("planned", "deleted"): "skipped",
    ("fired", "deleted"): "failed",
    ("failed", "queued"): "fired",
}


def test_an_occurrence_follows_its_job() -> None:
    moved = {
        (state.value, job.value): follow(state, job).value
        for state in OccurrenceState
        for job in JobState
        if follow(state, job) is not state
    }
    assert moved == FOLLOWED


def test_the_occurrence_of_a_denied_job_is_denied() -> None:
    denied = {
        state.value: follow(state, JobState.CANCELLED, "denied").value for state in OccurrenceState
    }
    moved = {state: target for state, target in denied.items() if state != target}
    assert moved == dict.fromkeys(("planned", "dispatching", "fired"), "denied")
    assert follow(OccurrenceState.FIRED, JobState.CANCELLED, "cancelled").value == "failed"


def test_following_stays_in_the_table() -> None:
    for (state, _), target in FOLLOWED.items():
        assert may_go(OccurrenceState(state), OccurrenceState(target))


def test_an_occurrence_whose_job_is_retried_has_fired() -> None:
    for job in (JobState.FAILED, JobState.RETRYING, JobState.QUEUED, JobState.PROCESSING):
        assert follow(OccurrenceState.FIRED, job) is OccurrenceState.FIRED


def row(nominal_ms: int, until_ms: int, count: int) -> Occurrence:
    return Occurrence(
        schedule_id=ScheduleId("sch_1"),
        nominal_ms=nominal_ms,
        until_ms=until_ms,
        count=count,
        run_at_ms=nominal_ms,
        state=OccurrenceState.MISSED,
        flow="mail",
        scope="user:u",
        name="n",
    )


@pytest.mark.parametrize(
    ("occurrence", "covered", "is_range"),
    [(row(10, 10, 1), {10}, False), (row(10, 12, 2), {10, 11, 12}, True)],
)
def test_a_row_covers_its_first_and_its_last_time(
    occurrence: Occurrence, covered: set[int], is_range: bool
) -> None:
    assert {ms for ms in range(8, 15) if occurrence.covers(ms)} == covered
    assert occurrence.is_range is is_range


def test_a_row_survives_a_round_trip_through_json() -> None:
    occurrence = row(10, 12, 2)
    stored = msgspec.json.encode(occurrence)
    assert msgspec.json.decode(stored, type=Occurrence) == occurrence


@pytest.mark.parametrize(
    ("states", "is_one"),
    [
        ("", False),
        ("mm", False),
        ("mms", True),
        ("smooo", False),
        ("smsooo", True),
        ("smsoooo", False),
    ],
)
def test_three_and_half_of_the_last_times_are_repeated_misses(states: str, is_one: bool) -> None:
    kinds = {"m": OccurrenceState.MISSED, "s": OccurrenceState.SKIPPED}
    kinds["o"] = OccurrenceState.SUCCEEDED
    assert keeps_missing([kinds[each] for each in states]) is is_one


def test_times_missed_in_a_pause_have_their_own_outcome() -> None:
    assert outcome_of(OccurrenceState.MISSED, "paused") == "paused"
    assert outcome_of(OccurrenceState.MISSED, None) == "missed"
    assert outcome_of(OccurrenceState.SUCCEEDED, "paused") == "succeeded"
