"""Hand-over by HTTP: claims of a tick, ends of posts, and what an endpoint fires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from duly.errors import InvalidInput
from duly.model.jobs import Delivery, JobId, NewJob, check_text
from duly.model.schedules import ScheduleId, ScheduleState
from duly.triggers.instants import END_MS, STORED_FROM_MS

DispatchEnd = Literal["closed", "again", "failed", "denied", "not_found"]
"""closed: taken (2xx). again: to be posted again if that is allowed, else failed. failed: for good.
denied: whoever authorises there said no.
not_found: the endpoint knows no such schedule; failed, and counted on the row."""

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
