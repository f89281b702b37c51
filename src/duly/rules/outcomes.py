"""Station 7: what follows from an attempt.

Takes a leased job and how its attempt ended; gives the transition to store. Pure: the share of
jitter is an argument, and the store's clock turns delays into times.
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
    took_ms: int | None = None
    """How long the handler ran; None: it was not called."""
    progress: str | None = None
    """The last progress note, where it is not stored yet."""
    isolate: bool = False
    """The handler stopped its worker: from now on the job runs in a process of its own."""


_SUCCEEDED = JobState.SUCCEEDED
_as_finish: Callable[[tuple[object, ...]], Finish] = partial(tuple.__new__, Finish)
"""Finish._make() without its check, which is a good part of what it costs."""


def decide(
    job: LeasedJob,
    outcome: Outcome,
    chance: float = 0.0,
    took_ms: int | None = None,
    is_charged: bool = False,
) -> Finish:
    """Return the transition that an outcome means.

    `took_ms` is how long the handler ran; `is_charged` says that the attempt was charged already,
    when its start was recorded.
    """
    unpaid = 0 if is_charged else 1
    made_by = job.schedule_id
    match outcome:
        case Succeeded():
            # The usual end: by name it would cost twice as much.
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
    """Refuse a finish whose path is not in the transition table."""
    state = JobState.PROCESSING
    for target in (finish.state,) if finish.via is None else (finish.via, finish.state):
        if not may_go(state, target):
            raise InvalidInput(
                f"job {finish.job_id} may not go from {state} to {target}; "
                "make finishes with duly.rules.outcomes.decide()"
            )
        state = target
    if state is JobState.FAILED:
        raise InvalidInput(f"job {finish.job_id} may not rest in {state}; it passes through")


class Lost(Protocol):
    """What a loss is decided by; a Job has it."""

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
    """What follows from a lease that ended unrenewed."""

    path: tuple[JobState, ...]
    """The states that the job goes through."""
    start_mode: StartMode
    """How it is started from now on."""
    charge: int
    """What the count of attempts changes by."""


_DEAD = (JobState.FAILED, JobState.DEAD)
_QUEUED = (JobState.QUEUED,)


def decide_loss(job: Lost) -> Loss:
    """Return what becomes of a job whose lease ended: ADR 0027 has the table.

    Only a loss in isolation is charged, and of an at-most-once job that had begun. Whatever ran
    beside a job that killed its worker must not pay for it.
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
