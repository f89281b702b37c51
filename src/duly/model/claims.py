"""Claims of jobs and their renewal: what a worker asks for and what it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from duly.model.jobs import DEFAULT_QUEUE, JobId, LeasedJob, Token, WorkerId

MAX_JOB_CLAIM = 5_000


class HeldToken(NamedTuple):
    """A token that the asking worker holds, with how many more jobs it may run under it."""

    token: Token
    room: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a worker asks for."""

    worker: WorkerId
    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    """Served in this order; priority orders inside a queue."""
    limit: int = 100
    """Jobs that may wait in the worker's buffer."""
    lease_ms: int = 30_000
    actions: tuple[str, ...] | None = None
    """Only these, where given: a node leaves alone what it does not know."""
    fair: bool = False
    """Claim by tokens: the least recently served (queue, workspace) pair first."""
    tokens: int = 10
    """With `fair`: lease at most so many tokens, at most one per pair."""
    token_batch: int = 10
    """With `fair`: claim at most so many jobs per token while many pairs wait."""
    max_token_batch: int | None = None
    """With `fair`: claim up to so many per token where few pairs wait; None: `token_batch`."""
    held: tuple[HeldToken, ...] = ()
    """With `fair`: tokens to claim more jobs under while only their pair waits, and while the first
    job of that pair is one of `actions`."""
    token_lease_ms: int = 10_000

    def shares(self, waiting: int) -> tuple[int, int]:
        """Return how many tokens to lease, and how many jobs to claim per token.

        Where batches may grow, half of the waiting pairs share the room. The others are left to the
        next claim, of this worker or of one that has nothing to do.
        """
        most = self.max_token_batch
        if most is None or most <= self.token_batch or not waiting:
            return self.tokens, self.token_batch
        tokens = max(1, min(self.tokens, -(-waiting // 2)))
        return tokens, max(self.token_batch, min(self.limit // tokens, most))


class Claims(NamedTuple):
    """What a claim took."""

    jobs: list[LeasedJob]
    holds: dict[JobId, tuple[Token, ...]]
    """Tokens each job runs under; only jobs that have some. A token is given back when the last
    of its jobs has ended."""
    wake_at_ms: int | None
    """With no jobs: when the next one of the queues becomes due, or a lease of any ends."""
    now_ms: int


class NextLeaseEnd(NamedTuple):
    """When to look for leases that have ended."""

    at_ms: int | None
    """When the first lease of a running job ends, or has ended; None: no job is leased."""
    now_ms: int


class ProgressNote(NamedTuple):
    """How far a running job is."""

    job_id: JobId
    fence: int
    progress: str
    """JSON text."""


class Renewed(NamedTuple):
    """What a renewal found; everything not named was renewed."""

    lost: list[JobId]
    """The fence is void: somebody else has the job, or it ended."""
    cancel: list[JobId]
    """Somebody asked to cancel it."""
