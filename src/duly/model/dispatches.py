"""Hand-over by HTTP: claims of a tick, results of posts, and fires by an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from duly.errors import InvalidInput
from duly.model.jobs import Delivery, JobId, NewJob, check_text
from duly.model.schedules import ScheduleId, ScheduleState
from duly.triggers.instants import END_MS, STORED_FROM_MS

DispatchEnd = Literal["closed", "again", "failed", "denied", "not_found"]
"""closed: accepted (2xx). again: to be posted again if allowed, else failed. failed: final.
denied: refused by the endpoint's authorisation.
not_found: the endpoint knows no such schedule; failed, and counted on the row."""

MAX_DISPATCHES = 1_000
"""Dispatches in one claim, or in one call with answers."""
MAX_LEASE_MS = 86_400_000
"""Longest lease of a claim, and longest delay before a post is repeated."""
MAX_REASON = 1_000
"""Characters of a reason that are stored."""


@dataclass(frozen=True, slots=True)
class DispatchClaim:
    """A tick's request for dispatches."""

    claim_id: str
    """New for every claim. Repeating an id returns the same rows while their lease is valid."""
    limit: int = 100
    """At most as many as the tick can post at once."""
    lease_ms: int = 60_000
    """Longer than a post may take: after that another tick may claim the occurrence."""
    flows: tuple[str, ...] | None = None
    """Claim only these; None: all."""


class Dispatching(NamedTuple):
    """An occurrence for a tick to post."""

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
    """The result of a post."""

    schedule_id: ScheduleId
    nominal_ms: int
    end: DispatchEnd
    reason: str | None = None
    """For the ledger, and for the error of a row that is quarantined."""
    delay_ms: int = 0
    """With `again`: minimum delay before the next post."""


@dataclass(frozen=True, slots=True)
class Fire:
    """An endpoint's request for one job for one dispatch.

    The job carries `schedule_id`, `nominal_ms` (the request's time if the dispatch named none),
    `policies`, `turn`, and the idempotency key if there is one.
    """

    job: NewJob
    flow: str
    scope: str
    name: str
    is_stored: bool = False
    """The schedule was read from this store: refused if it has been deleted since."""

    def __post_init__(self) -> None:
        job = self.job
        if job.schedule_id is None or job.nominal_ms is None:
            raise InvalidInput(f"job {job.id} has no schedule_id or no nominal_ms; set both")
        check_text("schedule_id", job.schedule_id)
        if not STORED_FROM_MS <= job.nominal_ms < END_MS:
            raise InvalidInput(f"nominal_ms of job {job.id} is outside the years 2000 to 2199")
        if job.turn is not None and job.policies is None:
            raise InvalidInput(f"job {job.id} has a turn but no policies; set policies")
        for what in ("flow", "scope", "name"):
            check_text(what, getattr(self, what))


@dataclass(frozen=True, slots=True)
class Fired:
    """The job was created, by this call or an earlier one with the same job id."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same occurrence or key was accepted before; nothing changed."""

    job_id: JobId | None
    """The earlier job; None: there is none."""


@dataclass(frozen=True, slots=True)
class Overlapped:
    """The overlap policy skipped it; recorded in the ledger, no key is taken."""

    reason: str
    holder: JobId
    """The earlier job that has not ended."""


@dataclass(frozen=True, slots=True)
class Inactive:
    """The schedule accepts no dispatch; nothing changed and no key is taken."""

    state: ScheduleState | None
    """Paused, finished (also by `max_runs`) or quarantined; None: deleted since it was read."""


FireAnswer = Fired | Duplicate | Overlapped | Inactive
