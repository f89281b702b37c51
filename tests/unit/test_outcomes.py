"""Tests of outcomes: the transition for each one, and for lost jobs."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.jobs import JobId, JobState, LeasedJob, StartMode, may_go, retry_text
from duly.model.retries import RetryPolicy
from duly.rules.outcomes import (
    Cancelled,
    Failed,
    Finish,
    Outcome,
    Released,
    Succeeded,
    decide,
    decide_loss,
)

FIXED = RetryPolicy(attempts=3, backoff="fixed", first_delay_ms=1_000, jitter=False)
JOB = JobId("job_1")


def leased(
    attempts: int = 0, max_attempts: int = 3, careful: int = 0, retry: RetryPolicy = FIXED
) -> LeasedJob:
    """Return a claimed job."""
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


@pytest.mark.parametrize(("is_charged", "charge"), [(False, 1), (True, 0)])
def test_success(is_charged: bool, charge: int) -> None:
    finish = decide(leased(1), Succeeded('"done"'), is_charged=is_charged)
    assert finish == Finish(JOB, 4, JobState.SUCCEEDED, "succeeded", charge, result='"done"')


@pytest.mark.parametrize(("is_charged", "charge"), [(False, 1), (True, 0)])
@pytest.mark.parametrize(("timed_out", "status"), [(False, "failed"), (True, "timed_out")])
def test_failed_job_is_retried(is_charged: bool, charge: int, timed_out: bool, status: str) -> None:
    failed = Failed("no luck", timed_out=timed_out)
    finish = decide(leased(1), failed, is_charged=is_charged)
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
        None,
        None,
        False,
    )


@pytest.mark.parametrize("attempts", [2, 3, 7])
@pytest.mark.parametrize("is_charged", [False, True])
def test_last_failure_is_dead(attempts: int, is_charged: bool) -> None:
    finish = decide(leased(attempts), Failed("no luck"), is_charged=is_charged)
    assert (finish.state, finish.via, finish.delay_ms) == (JobState.DEAD, JobState.FAILED, None)
    assert finish.error == "no luck"


@pytest.mark.parametrize("is_charged", [False, True])
def test_failure_before_the_last_is_not_dead(is_charged: bool) -> None:
    finish = decide(leased(1), Failed("x"), is_charged=is_charged)
    assert finish.state is JobState.RETRYING


def test_final_failure_is_dead_at_once() -> None:
    finish = decide(leased(), Failed("no hope", is_final=True))
    assert (finish.state, finish.charge, finish.status) == (JobState.DEAD, 1, "failed")


@pytest.mark.parametrize(("is_charged", "charge"), [(False, 1), (True, 0)])
def test_cancelled(is_charged: bool, charge: int) -> None:
    finish = decide(leased(1), Cancelled("asked to"), is_charged=is_charged)
    assert finish == Finish(JOB, 4, JobState.CANCELLED, "cancelled", charge, error="asked to")


@pytest.mark.parametrize(("is_charged", "charge"), [(False, 0), (True, -1)])
def test_release_refunds_the_charge(is_charged: bool, charge: int) -> None:
    finish = decide(leased(1), Released("stopping"), is_charged=is_charged)
    assert finish == Finish(JOB, 4, JobState.QUEUED, "released", charge, error="stopping")


@given(
    st.sampled_from(
        [Succeeded(), Failed("x"), Failed("x", is_final=True), Cancelled(), Released()]
    ),
    st.integers(0, 9),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_every_outcome_is_in_the_transition_table(
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


def test_jitter_comes_from_the_caller() -> None:
    policy = RetryPolicy(9, "fixed", 1_000)
    delays = [
        decide(leased(retry=policy), Failed("x"), chance).delay_ms for chance in (0.0, 0.5, 0.9)
    ]
    assert delays == [1_000, 750, 550]


AHEAD, RECORDED, ISOLATED, ONCE = StartMode


@pytest.mark.parametrize(
    ("mode", "attempts", "has_started", "path", "then", "charge"),
    [
        (AHEAD, 0, True, ["queued"], RECORDED, 0),
        (AHEAD, 3, True, ["queued"], RECORDED, 0),
        (RECORDED, 0, False, ["queued"], RECORDED, 0),
        (RECORDED, 3, False, ["queued"], RECORDED, 0),
        (RECORDED, 1, True, ["queued"], ISOLATED, -1),
        (RECORDED, 3, True, ["queued"], ISOLATED, -1),
        (ISOLATED, 3, False, ["queued"], ISOLATED, 0),
        (ISOLATED, 2, True, ["queued"], ISOLATED, 0),
        (ISOLATED, 3, True, ["failed", "dead"], ISOLATED, 0),
        (ONCE, 0, False, ["queued"], ONCE, 0),
        (ONCE, 1, True, ["failed", "dead"], ONCE, 0),
        (ONCE, 1, False, ["queued"], ONCE, 0),
    ],
)
def test_losses(
    mode: StartMode,
    attempts: int,
    has_started: bool,
    path: list[str],
    then: StartMode,
    charge: int,
) -> None:
    job = SimpleNamespace(
        start_mode=mode,
        attempts=attempts,
        max_attempts=3,
        cancel_asked=False,
        fence=4,
        unstarted=None if has_started else 4,
    )
    loss = decide_loss(job)
    assert ([state.value for state in loss.path], *loss[1:]) == (path, then, charge)
    job.cancel_asked = True
    assert decide_loss(job) == ((JobState.CANCELLED,), mode, 0)


def test_an_older_claim_does_not_hide_a_start() -> None:
    """A claim not recorded as unstarted counts as started, so the job must not be repeated."""
    job = SimpleNamespace(
        start_mode=ONCE, attempts=1, max_attempts=1, cancel_asked=False, fence=5, unstarted=4
    )
    assert decide_loss(job).path == (JobState.FAILED, JobState.DEAD)
