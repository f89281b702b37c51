"""Decisions on the outcome of an attempt.

From a leased job and its outcome they compute the transition to store. Pure: the random share of
jitter is an argument, and the store's clock converts delays to times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, assert_never

from duly.errors import InvalidInput
from duly.model.events import AttemptStatus
from duly.model.jobs import JobId, JobState, LeasedJob, StartMode, may_go, retry_from

LEASE_EXPIRED = "lease expired"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    result: str | None = None
    """JSON text."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised or timed out."""

    error: str
    is_final: bool = False
    """Do not retry."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler was asked to stop and did."""

    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class Released:
    """The worker returned the job; this never counts as a try."""

    reason: str = "released at stop"


@dataclass(frozen=True, slots=True)
class Denied:
    """The schedule may not run as its principal; the handler was not called."""

    reason: str


Outcome = Succeeded | Failed | Cancelled | Released | Denied


class Finish(NamedTuple):
    """One transition out of processing, valid only for the claim with this fence."""

    job_id: JobId
    fence: int
    state: JobState
    status: AttemptStatus
    """The final status of the attempt."""
    charge: int
    """Change of the count of attempts."""
    via: JobState | None = None
    """`failed` if the job passes through it, with an event of its own."""
    delay_ms: int | None = None
    """Delay until the new run time; None: run time and position in the queue stay."""
    result: str | None = None
    error: str | None = None
    """Also the reason of the event."""
    schedule_id: str | None = None
    """The schedule that made the job; its ledger is updated."""
    took_ms: int | None = None
    """Run time of the handler; None: it was not called."""
    progress: str | None = None
    """The last progress note, if it is not stored yet."""
    isolate: bool = False
    """The handler stopped its worker: from now on the job runs in its own process."""


_SUCCEEDED = JobState.SUCCEEDED
_as_finish: Callable[[tuple[object, ...]], Finish] = partial(tuple.__new__, Finish)
"""Finish._make() without its length check, which is a large part of its cost."""


def decide(
    job: LeasedJob,
    outcome: Outcome,
    chance: float = 0.0,
    took_ms: int | None = None,
    is_charged: bool = False,
) -> Finish:
    """Return the transition for an outcome.

    `took_ms`: run time of the handler. `is_charged`: the attempt was charged when its start was
    recorded.
    """
    unpaid = 0 if is_charged else 1
    made_by = job.schedule_id
    match outcome:
        case Succeeded():
            # The common case: keyword arguments would double its cost.
            ended = (_SUCCEEDED, "succeeded", unpaid, None, None, outcome.result, None)
            return _as_finish((job.id, job.fence, *ended, made_by, took_ms, None, False))
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
                took_ms=took_ms,
            )
            if is_final or job.tries >= job.max_attempts:
                return failed
            delay_ms = retry_from(job.retry).delay_ms(job.tries, chance)
            return failed._replace(state=JobState.RETRYING, delay_ms=delay_ms)
        case Cancelled(reason):
            state = JobState.CANCELLED
            return Finish(
                *(job.id, job.fence, state, "cancelled", unpaid),
                error=reason,
                schedule_id=made_by,
                took_ms=took_ms,
            )
        case Denied(reason):
            state, said = JobState.CANCELLED, f"denied: {reason}"
            return Finish(
                job.id, job.fence, state, "denied", unpaid, error=said, schedule_id=made_by
            )
        case Released(reason):
            state, charge = JobState.QUEUED, unpaid - 1
            return Finish(
                job.id,
                job.fence,
                state,
                "released",
                charge,
                error=reason,
                schedule_id=made_by,
                took_ms=took_ms,
            )
        case _:
            assert_never(outcome)


def mode_after(finish: Finish, mode: StartMode) -> StartMode:
    """Return how a job is started after a completion; at most once stays at most once."""
    return StartMode.ISOLATED if finish.isolate and mode is not StartMode.ONCE else mode


def check_finish(finish: Finish) -> None:
    """Refuse a finish whose transitions are not allowed."""
    state = JobState.PROCESSING
    for target in (finish.state,) if finish.via is None else (finish.via, finish.state):
        if not may_go(state, target):
            raise InvalidInput(
                f"job {finish.job_id} may not go from {state} to {target}; "
                "create a Finish with duly.rules.outcomes.decide()"
            )
        state = target
    if state is JobState.FAILED:
        raise InvalidInput(f"job {finish.job_id} may not stay in {state}; use `via`")


class Lost(Protocol):
    """The fields of a job that decide_loss() needs."""

    @property
    def cancel_asked(self) -> bool: ...
    @property
    def start_mode(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def fence(self) -> int: ...
    @property
    def unstarted(self) -> int | None: ...


class Loss(NamedTuple):
    """The consequences of an expired lease."""

    path: tuple[JobState, ...]
    """The states that the job passes through."""
    start_mode: StartMode
    """How the next attempt is started."""
    charge: int
    """Change of the count of attempts."""


_DEAD = (JobState.FAILED, JobState.DEAD)
_QUEUED = (JobState.QUEUED,)


def decide_loss(job: Lost) -> Loss:
    """Return the transition of a job whose lease expired, by the table in ADR 0027.

    A loss is charged only in isolation, and for an at-most-once job that had started: jobs that ran
    next to one that killed its worker must not be charged.
    """
    mode = StartMode(job.start_mode)
    if job.cancel_asked:
        return Loss((JobState.CANCELLED,), mode, 0)
    if mode is StartMode.AHEAD:
        return Loss(_QUEUED, StartMode.RECORDED, 0)
    if job.unstarted == job.fence:
        return Loss(_QUEUED, mode, 0)
    match mode:
        case StartMode.RECORDED:
            return Loss(_QUEUED, StartMode.ISOLATED, -1)
        case StartMode.ISOLATED:
            return Loss(_DEAD if job.attempts >= job.max_attempts else _QUEUED, mode, 0)
        case StartMode.ONCE:
            return Loss(_DEAD, mode, 0)
        case _:
            assert_never(mode)
