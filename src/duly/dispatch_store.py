"""The port to a database, for hand-over by HTTP: what a tick takes, and what an endpoint fires.

As in `store`: every verb is one step; times are integer milliseconds by the database's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from duly.jobs import Delivery, JobId, NewJob
from duly.schedules import ScheduleId

MAX_DISPATCHES = 1_000
MAX_TRIES = 10
"""Posts of one occurrence, the first included; after that it has failed."""
NOT_FOUND_LIMIT = 3
"""So often in a row may an endpoint not know a schedule before its row is quarantined."""

DispatchEnd = Literal["closed", "again", "failed", "not_found"]
"""closed: taken (2xx). again: to be posted again if that is allowed, else failed. failed: for good.
not_found: the endpoint knows no such schedule; failed, and counted on the row."""


@dataclass(frozen=True, slots=True)
class DispatchClaim:
    """What a tick asks for."""

    claim_id: str
    """The same id gives the same rows again, as long as their lease stands."""
    limit: int = 100
    """No more than the tick can post at once."""
    lease_ms: int = 60_000
    flows: tuple[str, ...] | None = None


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


@dataclass(frozen=True, slots=True)
class Fired:
    """The job was made, or made before by a repeated call with the same job id."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same occurrence, or the same key, was taken before; nothing changed."""

    job_id: JobId | None


@dataclass(frozen=True, slots=True)
class Overlapped:
    """The overlap policy skipped it; the ledger says so, no key is taken."""

    reason: str


class DispatchStore(Protocol):
    """What Duly asks of a database for hand-over by HTTP."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Take due rows of hand-over `http` and posts whose lease or delay has ended.

        Ledger rows as `dispatching`, with claim id and lease, and the advance of each row are one
        transaction. A lease that ended: at_least_once is posted again, at_most_once becomes
        `failed (unknown)` and is not given.
        """

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Store how posts ended; gives how many stood under this claim still.

        A row that the endpoint has moved on to `fired` or later stays as it is.
        """

    async def fire(self, request: Fire) -> Fired | Duplicate | Overlapped:
        """Move an occurrence to `fired` and make its job, in one transaction.

        A time that has no row, or is dispatching, withdrawn or quarantined, is free; any later
        state is a duplicate.
        """
