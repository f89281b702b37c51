"""Job claims and lease renewals: requests and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from duly.model.jobs import DEFAULT_QUEUE, JobId, LeasedJob, Token, WorkerId

MAX_JOB_CLAIM = 5_000


class HeldToken(NamedTuple):
    """A token that the requesting worker holds, with how many more jobs it may run under it."""

    token: Token
    room: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A worker's request for jobs."""

    worker: WorkerId
    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    """Claimed in this order; priority applies within a queue."""
    limit: int = 100
    """Jobs to claim at most: the room in the worker's buffer."""
    lease_ms: int = 30_000
    actions: tuple[str, ...] | None = None
    """Claim only these; None: all. A node skips actions it does not know."""
    fair: bool = False
    """Claim by tokens: the least recently served (queue, workspace) pair first."""
    tokens: int = 10
    """With `fair`: tokens to lease at most, one per pair."""
    token_batch: int = 10
    """With `fair`: jobs to claim per token at most while many pairs wait."""
    max_token_batch: int | None = None
    """With `fair`: jobs to claim per token at most while few pairs wait; None: `token_batch`."""
    held: tuple[HeldToken, ...] = ()
    """With `fair`: tokens to claim more jobs under while only their pair waits, and while the first
    job of that pair is one of `actions`."""
    token_lease_ms: int = 10_000

    def shares(self, waiting: int) -> tuple[int, int]:
        """Return how many tokens to lease, and how many jobs to claim per token.

        If batches may grow, half of the waiting pairs share the limit. The others are left for the
        next claim, by this worker or an idle one.
        """
        most = self.max_token_batch
        if most is None or most <= self.token_batch or not waiting:
            return self.tokens, self.token_batch
        tokens = max(1, min(self.tokens, -(-waiting // 2)))
        return tokens, max(self.token_batch, min(self.limit // tokens, most))


class Claims(NamedTuple):
    """The result of a claim."""

    jobs: list[LeasedJob]
    holds: dict[JobId, tuple[Token, ...]]
    """Tokens that jobs run under, for jobs that have some. A token is returned when the last of its
    jobs has ended."""
    wake_at_ms: int | None
    """Without jobs: when the next job of the queues becomes due, or any lease ends."""
    now_ms: int


class NextLeaseEnd(NamedTuple):
    """When to look for expired leases next."""

    at_ms: int | None
    """End of the first lease of a running job, possibly past; None: no job is leased."""
    now_ms: int


class ProgressNote(NamedTuple):
    """The progress of a running job."""

    job_id: JobId
    fence: int
    progress: str
    """JSON text."""


class Renewed(NamedTuple):
    """The result of a renewal; all jobs that are not listed were renewed."""

    lost: list[JobId]
    """The fence is outdated: another worker has the job, or it ended."""
    cancel: list[JobId]
    """Cancellation was requested."""
