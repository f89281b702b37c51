"""Outcomes: the transition each one means, and what becomes of a job that was lost."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.jobs import JobId, JobState, LeasedJob, may_go, retry_text
from duly.outcomes import (
    Cancelled,
    Failed,
    Finish,
    Outcome,
    Released,
    Succeeded,
    decide,
    decide_loss,
)
from duly.retries import RetryPolicy

FIXED = RetryPolicy(attempts=3, backoff="fixed", first_delay_ms=1_000, jitter=False)
JOB = JobId("job_1")


def leased(
    attempts: int = 0, max_attempts: int = 3, careful: int = 0, retry: RetryPolicy = FIXED
) -> LeasedJob:
    """A claimed job; a careful one has paid for this claim."""
    return LeasedJob(
        JOB,
        "mail.send",
        "null",
        "default",
        "system",
        "system",
        attempts,
        max_attempts,
        careful,
        4,
        retry_text(retry),
        300_000,
        None,
        None,
        None,
        0,
    )


@pytest.mark.parametrize(("careful", "charge"), [(0, 1), (1, 0)])
def test_success(careful: int, charge: int) -> None:
    finish = decide(leased(1, careful=careful), Succeeded('"done"'))
    assert finish == Finish(JOB, 4, JobState.SUCCEEDED, "succeeded", charge, result='"done"')


@pytest.mark.parametrize(("careful", "charge"), [(0, 1), (1, 0)])
@pytest.mark.parametrize(("timed_out", "status"), [(False, "failed"), (True, "timed_out")])
def test_failure_is_tried_again(careful: int, charge: int, timed_out: bool, status: str) -> None:
    finish = decide(leased(1, careful=careful), Failed("no luck", timed_out=timed_out))
    assert finish == (
        JOB,
        4,
        JobState.RETRYING,
        status,
        charge,
        JobState.FAILED,
        1_000,
        None,
        "no luck",
        None,
    )


@pytest.mark.parametrize(("attempts", "careful"), [(2, 0), (3, 1), (7, 0)])
def test_last_failure_is_dead(attempts: int, careful: int) -> None:
    finish = decide(leased(attempts, careful=careful), Failed("no luck"))
    assert (finish.state, finish.via, finish.delay_ms) == (JobState.DEAD, JobState.FAILED, None)
    assert finish.error == "no luck"


@pytest.mark.parametrize(("attempts", "careful"), [(1, 0), (2, 1)])
def test_failure_before_the_last_is_not_dead(attempts: int, careful: int) -> None:
    assert decide(leased(attempts, careful=careful), Failed("x")).state is JobState.RETRYING


def test_final_failure_is_dead_at_once() -> None:
    finish = decide(leased(), Failed("no hope", is_final=True))
    assert (finish.state, finish.charge, finish.status) == (JobState.DEAD, 1, "failed")


@pytest.mark.parametrize(("careful", "charge"), [(0, 1), (1, 0)])
def test_cancelled(careful: int, charge: int) -> None:
    finish = decide(leased(1, careful=careful), Cancelled("asked to"))
    assert finish == Finish(JOB, 4, JobState.CANCELLED, "cancelled", charge, error="asked to")


@pytest.mark.parametrize(("careful", "charge"), [(0, 0), (1, -1)])
def test_release_gives_back_what_was_paid(careful: int, charge: int) -> None:
    finish = decide(leased(1, careful=careful), Released("stopping"))
    assert finish == Finish(JOB, 4, JobState.QUEUED, "released", charge, error="stopping")


@given(
    st.sampled_from(
        [Succeeded(), Failed("x"), Failed("x", is_final=True), Cancelled(), Released()]
    ),
    st.integers(0, 9),
    st.integers(1, 9),
    st.integers(0, 1),
)
def test_every_outcome_is_a_way_of_the_table(
    outcome: Outcome, attempts: int, most: int, careful: int
) -> None:
    finish = decide(leased(attempts, most, careful), outcome)
    start = JobState.PROCESSING
    if finish.via is not None:
        assert may_go(start, finish.via)
        start = finish.via
    assert may_go(start, finish.state)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ("none", [0, 0, 0, 0, 0]),
        ("fixed", [1_000, 1_000, 1_000, 1_000, 1_000]),
        ("exponential", [1_000, 2_000, 4_000, 5_000, 5_000]),
    ],
)
def test_delays(backoff: str, delays: list[int]) -> None:
    policy = RetryPolicy(9, backoff, 1_000, 5_000, jitter=False)  # type: ignore[arg-type]
    for attempts, delay_ms in enumerate(delays):
        finish = decide(leased(attempts, 9, retry=policy), Failed("x"), chance=0.99)
        assert finish.delay_ms == delay_ms


@given(st.integers(0, 998), st.floats(0, 1, exclude_max=True), st.integers(0, 10**6))
def test_jitter_takes_at_most_half(attempts: int, chance: float, first_ms: int) -> None:
    policy = RetryPolicy(1_000, "exponential", first_ms, 10**7)
    whole = RetryPolicy(1_000, "exponential", first_ms, 10**7, jitter=False)
    job = leased(attempts, 1_000)
    delay_ms = decide(job._replace(retry=retry_text(policy)), Failed("x"), chance).delay_ms
    full_ms = decide(job._replace(retry=retry_text(whole)), Failed("x"), chance).delay_ms
    assert delay_ms is not None
    assert full_ms is not None
    assert full_ms / 2 <= delay_ms <= full_ms <= 10**7


def test_jitter_is_the_caller_s_chance() -> None:
    policy = RetryPolicy(9, "fixed", 1_000)
    delays = [
        decide(leased(retry=policy), Failed("x"), chance).delay_ms for chance in (0.0, 0.5, 0.9)
    ]
    assert delays == [1_000, 750, 550]


@pytest.mark.parametrize(
    ("careful", "attempts", "cancel_asked", "path"),
    [
        (False, 0, False, ["queued"]),
        (False, 2, False, ["queued"]),
        (False, 3, False, ["queued"]),
        (True, 2, False, ["queued"]),
        (True, 3, False, ["failed", "dead"]),
        (True, 4, False, ["failed", "dead"]),
        (False, 0, True, ["cancelled"]),
        (True, 3, True, ["cancelled"]),
    ],
)
def test_losses(careful: bool, attempts: int, cancel_asked: bool, path: list[str]) -> None:
    job = SimpleNamespace(
        is_careful=careful, attempts=attempts, max_attempts=3, cancel_asked=cancel_asked
    )
    assert [state.value for state in decide_loss(job)] == path
