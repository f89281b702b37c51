"""The port to a database, for hand-over by HTTP: what a tick takes, and what an endpoint fires.

As in `store`: every verb is one step; times are integer milliseconds by the database's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from duly.dispatching import DispatchEnd
from duly.errors import InvalidInput
from duly.jobs import Delivery, JobId, NewJob, check_text
from duly.schedules import ScheduleId, ScheduleState
from duly.triggers.instants import END_MS, STORED_FROM_MS

MAX_DISPATCHES = 1_000
"""In one claim, or in one call of answers."""
MAX_LEASE_MS = 86_400_000
"""Of a claim, and of the delay before a post is repeated."""
MAX_REASON = 1_000
"""Characters of a reason that are kept."""


@dataclass(frozen=True, slots=True)
class DispatchClaim:
    """What a tick asks for."""

    claim_id: str
    """New for every claim. The same id gives the same rows again, as long as their lease stands."""
    limit: int = 100
    """No more than the tick can post at once."""
    lease_ms: int = 60_000
    """Longer than a post may take: after that the occurrence is somebody else's."""
    flows: tuple[str, ...] | None = None
    """Only these, where given."""


class Dispatching(NamedTuple):
    """An occurrence that a tick is to post."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    nominal_ms: int
    run_at_ms: int
    tries: int
    """1 for the first post."""
    delivery: Delivery
    lease_until_ms: int


class DispatchAnswer(NamedTuple):
    """How a post ended."""

    schedule_id: ScheduleId
    nominal_ms: int
    end: DispatchEnd
    reason: str | None = None
    """For the ledger, and for the error of a row that is quarantined."""
    delay_ms: int = 0
    """again: not before."""


@dataclass(frozen=True, slots=True)
class Fire:
    """What an endpoint asks for: one job for one dispatch.

    The job carries `schedule_id`, `nominal_ms` (of the request, where the dispatch named no time),
    `policies`, `turn`, and the idempotency key where there is one.
    """

    job: NewJob
    flow: str
    scope: str
    name: str
    is_stored: bool = False
    """The schedule was read from this store: refused where it has been deleted since."""

    def __post_init__(self) -> None:
        job = self.job
        if job.schedule_id is None or job.nominal_ms is None:
            raise InvalidInput(f"job {job.id} names no schedule_id or no nominal_ms")
        check_text("schedule_id", job.schedule_id)
        if not STORED_FROM_MS <= job.nominal_ms < END_MS:
            raise InvalidInput(f"nominal_ms of job {job.id} lies outside the years 2000 to 2199")
        if job.turn is not None and job.policies is None:
            raise InvalidInput(f"job {job.id} has a turn, but no policies to decide it by")
        for what in ("flow", "scope", "name"):
            check_text(what, getattr(self, what))


@dataclass(frozen=True, slots=True)
class Fired:
    """The job was made, or made before by a repeated call with the same job id."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same occurrence, or the same key, was taken before; nothing changed."""

    job_id: JobId | None
    """Of the one before, where there is one."""


@dataclass(frozen=True, slots=True)
class Overlapped:
    """The overlap policy skipped it; the ledger says so, no key is taken."""

    reason: str
    holder: JobId
    """The job that is in the way."""


@dataclass(frozen=True, slots=True)
class Inactive:
    """The schedule accepts no dispatch; nothing changed and no key is taken."""

    state: ScheduleState | None
    """Paused, finished (be it for want of runs) or quarantined; None: deleted since it was read."""


FireAnswer = Fired | Duplicate | Overlapped | Inactive


class DispatchStore(Protocol):
    """What Duly asks of a database for hand-over by HTTP."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Take due rows of hand-over `http` and posts whose lease or delay has ended.

        Ledger rows as `dispatching`, with claim id and lease, and the advance of each row are one
        transaction; misfires go by the schedule's policy. What was claimed before comes first. If
        there is more than the limit, what has been free for longest is taken; the answer is in
        order of run times. A lease that ended: at_least_once is posted again, at_most_once becomes
        `failed (unknown)` and is not given.
        """

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Store how posts ended; gives how many stood under this claim still.

        A row that the endpoint has moved on to `fired` or later stays as it is. A schedule that the
        endpoint did not know NOT_FOUND_LIMIT times in a row has its row quarantined; an answer
        `closed`, and an edit of the row, begin the count anew.
        """

    async def fire(self, request: Fire) -> FireAnswer:
        """Move an occurrence to `fired` and make its job, in one transaction.

        A time that has no row, or is dispatching, withdrawn or quarantined, is free; any later
        state is a duplicate. A job that has to wait its turn is made too; its row is `planned`
        until it begins.

        The schedule need not be stored. One that is must be active; of a finished one only an
        occurrence that a tick holds is fired. If it has a limit on its runs the occurrence is
        charged, unless the tick that holds it has charged it. A schedule is finished by the
        dispatch that has its last run; an external one also by that after whose nominal time its
        rule has no other.
        """
