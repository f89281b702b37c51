"""Station 7: what follows from an attempt.

Takes a leased job and how its attempt ended; gives the transition to store. Pure: the share of
jitter is an argument, and the store's clock turns delays into times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, assert_never

from duly.errors import InvalidInput
from duly.events import AttemptStatus
from duly.jobs import JobId, JobState, LeasedJob, may_go, retry_from

LEASE_EXPIRED = "lease expired"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    result: str | None = None
    """JSON text."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, or ran out of time."""

    error: str
    is_final: bool = False
    """Trying again would not help."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler was asked to stop, and did."""

    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class Released:
    """The worker gives the job back; it never counts as a try."""

    reason: str = "released at stop"


@dataclass(frozen=True, slots=True)
class Denied:
    """The schedule may not act as its principal; the handler was not called."""

    reason: str


Outcome = Succeeded | Failed | Cancelled | Released | Denied


class Finish(NamedTuple):
    """One transition out of processing, valid only for the claim with this fence."""

    job_id: JobId
    fence: int
    state: JobState
    status: AttemptStatus
    """How the attempt is closed."""
    charge: int
    """What the count of attempts changes by."""
    via: JobState | None = None
    """`failed`, where the job passes through it: one more event."""
    delay_ms: int | None = None
    """Not before so long from now; None: the run time stays, and with it the place in line."""
    result: str | None = None
    error: str | None = None
    """Also the reason of the event."""
    schedule_id: str | None = None
    """Of the schedule that made the job: the ledger follows it."""


def decide(job: LeasedJob, outcome: Outcome, chance: float = 0.0) -> Finish:
    """The transition an outcome means."""
    unpaid = 0 if job.careful else 1
    made_by = job.schedule_id
    match outcome:
        case Succeeded():
            # By position: the usual end, and names would double what it costs.
            ended, result = JobState.SUCCEEDED, outcome.result
            return Finish(
                job.id, job.fence, ended, "succeeded", unpaid, None, None, result, None, made_by
            )
        case Failed(error, is_final, timed_out):
            status: AttemptStatus = "timed_out" if timed_out else "failed"
            failed = Finish(
                job.id,
                job.fence,
                JobState.DEAD,
                status,
                unpaid,
                JobState.FAILED,
                error=error,
                schedule_id=made_by,
            )
            if is_final or job.attempt >= job.max_attempts:
                return failed
            delay_ms = retry_from(job.retry).delay_ms(job.attempt, chance)
            return failed._replace(state=JobState.RETRYING, delay_ms=delay_ms)
        case Cancelled(reason):
            state = JobState.CANCELLED
            return Finish(
                job.id, job.fence, state, "cancelled", unpaid, error=reason, schedule_id=made_by
            )
        case Denied(reason):
            state, said = JobState.CANCELLED, f"denied: {reason}"
            return Finish(
                job.id, job.fence, state, "denied", unpaid, error=said, schedule_id=made_by
            )
        case Released(reason):
            state, charge = JobState.QUEUED, unpaid - 1
            return Finish(
                job.id, job.fence, state, "released", charge, error=reason, schedule_id=made_by
            )
        case _:
            assert_never(outcome)


def check_finish(finish: Finish) -> None:
    """Refuse a finish whose path is not in the transition table."""
    state = JobState.PROCESSING
    for target in (finish.state,) if finish.via is None else (finish.via, finish.state):
        if not may_go(state, target):
            raise InvalidInput(
                f"job {finish.job_id} may not go from {state} to {target}; "
                "make finishes with duly.outcomes.decide()"
            )
        state = target
    if state is JobState.FAILED:
        raise InvalidInput(f"job {finish.job_id} may not rest in {state}; it passes through")


class Lost(Protocol):
    """What a loss is decided by; a Job has it."""

    @property
    def cancel_asked(self) -> bool: ...
    @property
    def is_careful(self) -> bool: ...
    @property
    def attempts(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...


def decide_loss(job: Lost) -> tuple[JobState, ...]:
    """The states a job goes through when its lease ends unrenewed.

    A claim may have sat in a buffer, so the first loss counts as no try: the job is marked careful
    and claimed as a start from then on. A careful job has paid for the claim that was lost.
    """
    if job.cancel_asked:
        return (JobState.CANCELLED,)
    if job.is_careful and job.attempts >= job.max_attempts:
        return (JobState.FAILED, JobState.DEAD)
    return (JobState.QUEUED,)
