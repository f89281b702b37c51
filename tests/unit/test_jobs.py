"""Tests of job values: the transition table, refused values, and order in line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import InvalidInput
from duly.model.jobs import (
    FINAL,
    KEY_TTL_MS,
    MAX_INPUT_BYTES,
    MAX_PRIORITY,
    MAX_TEXT,
    MAX_TIMEOUT_MS,
    TRANSITIONS,
    JobId,
    JobState,
    NewJob,
    StartMode,
    may_go,
    place_of,
    retry_from,
    retry_text,
)
from duly.model.retries import RetryPolicy
from duly.triggers.instants import END_MS, STORED_FROM_MS

# Written by hand from the design. Rows are "from", columns "to"; x allowed, = no change, . refused.
MATRIX = {
    "scheduled": "= x . . . . x . .",
    "queued": ". = x . . . x . x",
    "processing": ". x = x x . x . .",
    "succeeded": ". . . = . . . . x",
    "failed": ". x . . = x . x .",
    "retrying": ". x . . . = x . .",
    "cancelled": ". . . . . . = . x",
    "dead": ". x . . . . . = x",
    "deleted": ". . . . . . . . =",
}
CELLS = [
    (JobState(state), JobState(target), cell)
    for state, row in MATRIX.items()
    for target, cell in zip(MATRIX, row.split(), strict=True)
]


def a_job(**fields: Any) -> NewJob:
    values: dict[str, Any] = {"id": JobId("job_1"), "action": "mail.send"}
    return NewJob(**values | fields)


@pytest.mark.parametrize(("state", "target", "cell"), CELLS)
def test_transition_table(state: JobState, target: JobState, cell: str) -> None:
    assert may_go(state, target) is (cell == "x")


def test_table_is_complete() -> None:
    cells = [cell for *_, cell in CELLS]
    assert [cells.count(each) for each in "x=."] == [18, 9, 54]
    assert set(TRANSITIONS) == set(JobState) == {JobState(each) for each in MATRIX}


def test_final_states_lead_to_no_attempt() -> None:
    """A job in a final state can only be deleted, or queued again by a user."""
    assert {each.value for each in FINAL} == {"succeeded", "cancelled", "dead", "deleted"}
    for state in FINAL:
        assert TRANSITIONS[state] <= {JobState.DELETED, JobState.QUEUED}


def test_defaults() -> None:
    job = a_job()
    assert (job.queue, job.workspace, job.scope) == ("default", "system", "system")
    assert (job.priority, job.aging_ms, job.run_at_ms) == (0, 0, None)
    assert (job.timeout_ms, job.max_attempts, job.start_mode) == (300_000, 5, StartMode.AHEAD)
    assert job.key_ttl_ms == KEY_TTL_MS == 7 * 86_400_000


def test_at_most_once_has_one_attempt() -> None:
    job = a_job(delivery="at_most_once", retry=RetryPolicy(attempts=9))
    assert (job.max_attempts, job.start_mode) == (1, StartMode.ONCE)
    assert a_job(retry=RetryPolicy(attempts=9)).max_attempts == 9


@pytest.mark.parametrize("field", ["id", "action", "queue", "workspace", "scope"])
@pytest.mark.parametrize("value", ["", "x" * (MAX_TEXT + 1), "a\0b", "a\ud800", None, 7])
def test_texts_are_required_and_limited(field: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=field):
        a_job(**{field: value})


@pytest.mark.parametrize("field", ["key", "correlation_id"])
def test_optional_texts(field: str) -> None:
    assert getattr(a_job(**{field: None}), field) is None
    assert getattr(a_job(**{field: "x" * MAX_TEXT}), field) == "x" * MAX_TEXT
    for value in ("", "x" * (MAX_TEXT + 1), "a\0b", "a\ud800"):
        with pytest.raises(InvalidInput, match=field):
            a_job(**{field: value})


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("priority", -MAX_PRIORITY, MAX_PRIORITY),
        ("timeout_ms", 1, MAX_TIMEOUT_MS),
        ("aging_ms", 0, MAX_TIMEOUT_MS),
        ("key_ttl_ms", 1, 366 * 86_400_000),
        ("run_at_ms", STORED_FROM_MS, END_MS),
    ],
)
def test_numbers_have_bounds(field: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(a_job(**{field: value}), field) == value
    for wrong in (least - 1, most + 1, 1.5, "1", True):
        with pytest.raises(InvalidInput, match=field):
            a_job(**{field: wrong})


def test_run_times_in_seconds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="run_at_ms"):
        a_job(run_at_ms=1_772_452_800)


def test_large_inputs_are_refused() -> None:
    a_job(input="x" * MAX_INPUT_BYTES)
    with pytest.raises(InvalidInput, match="Store large data elsewhere"):
        a_job(input="x" * (MAX_INPUT_BYTES + 1))


def test_policies_survive_a_round_trip() -> None:
    for policy in (RetryPolicy(), RetryPolicy(3, "fixed", 5, 70, jitter=False)):
        assert retry_from(retry_text(policy)) == policy


instants = st.integers(STORED_FROM_MS, END_MS)
priorities = st.integers(-MAX_PRIORITY, MAX_PRIORITY)
agings = st.integers(0, MAX_TIMEOUT_MS)


@given(instants, instants, priorities, priorities)
def test_place_is_priority_then_time(one: int, two: int, high: int, low: int) -> None:
    first = place_of(high, one, 0) < place_of(low, two, 0)
    assert first is ((-high, one) < (-low, two))


@given(instants, st.integers(0, 10**10), priorities, agings)
def test_place_moves_with_the_run_time(
    at_ms: int, delay_ms: int, priority: int, aging_ms: int
) -> None:
    moved = place_of(priority, at_ms + delay_ms, aging_ms)
    assert moved == place_of(priority, at_ms, aging_ms) + delay_ms


@given(instants, priorities, st.integers(1, MAX_TIMEOUT_MS))
def test_aging_is_the_time_per_point_of_priority(at_ms: int, priority: int, aging_ms: int) -> None:
    assert place_of(priority + 1, at_ms + aging_ms, aging_ms) == place_of(priority, at_ms, aging_ms)


@given(instants, priorities, agings)
def test_place_fits_into_a_column(at_ms: int, priority: int, aging_ms: int) -> None:
    assert -(2**63) <= place_of(priority, at_ms, aging_ms) < 2**63


def test_an_input_is_measured_in_bytes() -> None:
    half = MAX_INPUT_BYTES // 2
    assert NewJob(id=JobId("a"), action="a.b", input="ä" * half).input
    with pytest.raises(InvalidInput, match="bytes"):
        NewJob(id=JobId("a"), action="a.b", input="ä" * (half + 1))
