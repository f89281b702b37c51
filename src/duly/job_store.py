"""The port to a database, for jobs: the verbs of stations 5 to 8.

As in `store`: every verb is one step, atomic per row; losing a race is a return value; times are
integer milliseconds by the database's clock. `store.Store` holds these verbs too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from duly.events import Attempt, JobEvent
from duly.jobs import DEFAULT_QUEUE, Job, JobId, JobState, LeasedJob, NewJob, Token, WorkerId
from duly.outcomes import Finish

MAX_INSERT = 10_000
MAX_JOB_CLAIM = 5_000
MAX_SWEEP = 1_000
DAY_MS = 86_400_000


class Enqueued(NamedTuple):
    """The job is stored."""

    job_id: JobId
    created: bool
    """False: the id or the idempotency key was there already; the id is that job's."""


class KeyTaken(NamedTuple):
    """Nothing was stored: the idempotency key stands for a job with another input."""

    job_id: JobId
    """The job that has the key."""


class JobRefused(NamedTuple):
    """The transition is not in the table, or the job does not exist; nothing changed."""

    job_id: JobId
    state: JobState | None
    """The state found; None: no such job."""


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


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None: any."""

    state: JobState | None = None
    queue: str | None = None
    workspace: str | None = None
    action: str | None = None
    schedule_id: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs are kept."""

    succeeded_ms: int = DAY_MS
    """Since a job succeeded."""
    cancelled_ms: int = 7 * DAY_MS
    """Since it was cancelled."""
    dead_ms: int = 30 * DAY_MS
    """Since it was given up: long, so that somebody may retry it."""
    deleted_ms: int = DAY_MS
    """Since an operator deleted it."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What is decided about a queue; a queue nobody spoke about has the defaults."""

    queue: str
    is_paused: bool = False
    note: str | None = None
    job_limit: int | None = None
    """Jobs of the queue that may be claimed at once, over all workers; None: any number."""
    workspace_limit: int = 1
    """Tokens of each (queue, workspace) pair."""


class JobCount(NamedTuple):
    """How many jobs of a queue are in a state."""

    queue: str
    state: JobState
    jobs: int


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as it last said of itself."""

    id: WorkerId
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    running: int = 0
    is_stopping: bool = False
    started_at_ms: int = 0
    beat_at_ms: int = 0
    """Both times are the store's, whatever was passed in."""
    actions: tuple[str, ...] | None = None
    """Actions it has code for; None: a worker of an earlier release, which did not say."""


class WaitingWork(NamedTuple):
    """Queued jobs of one action in one queue, of those that were looked at."""

    queue: str
    action: str
    jobs: int
    oldest_run_at_ms: int
    is_capped: bool
    """The queue's line is longer than what was looked at."""


class Line(NamedTuple):
    """The head of every queue's line."""

    now_ms: int
    works: Sequence[WaitingWork]
    """By queue and action."""


class Lock(NamedTuple):
    """A named lock that its owner holds until a time unless it extends it."""

    name: str
    owner: str
    fence: int
    """Grows with every change of owner."""
    until_ms: int


Wake = Callable[[str], None]
"""Called, from any thread, with `queue:<name>` or `cancel:<job id>`: a hint, never needed.

`queue:*` says that hints may have been missed until now.
"""


class JobStore(Protocol):
    """What Duly asks of a database for jobs."""

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        """Store jobs with their first events, in one transaction; an answer per job, in order.

        A run time that has not come makes it `scheduled`, otherwise `queued`. An id that exists is
        left alone. A key that is taken and has not run out decides: same input, the job it stands
        for; another input, KeyTaken.
        """

    def insert_jobs_in(self, transaction: Any, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        """The same inside the caller's own transaction, which it never aborts, commits or ends."""

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        """Rescue, promote, then take queued jobs, with attempts and events, in one transaction."""

    async def renew(
        self,
        worker: WorkerId,
        leases: Sequence[tuple[JobId, int]],
        lease_ms: int,
        tokens: Sequence[Token] = (),
        token_lease_ms: int = 10_000,
    ) -> Renewed:
        """Extend leases whose (id, fence) still stands, and the worker's tokens."""

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        """Store how attempts ended; gives the ids whose fence was void, which stay as they are."""

    async def start_jobs(self, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
        """Record that handlers are about to be called, and charge the attempts.

        For jobs whose start mode is not AHEAD. A lease whose (id, fence) is void, or whose job was
        asked to stop, is not started and is named in the answer. Repeating it changes nothing.
        """

    async def release_tokens(self, worker: WorkerId, tokens: Sequence[Token]) -> None:
        """Give tokens back; somebody else's are left alone."""

    async def note_progress(self, notes: Sequence[ProgressNote]) -> list[JobId]:
        """Keep JSON texts beside running jobs; return the ids whose fence is void."""

    async def cancel_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Cancel what has not begun; ask a running job's worker to stop it (`cancel_asked`).

        Cancelling a cancelled job gives it back as it is.
        """

    async def retry_job(
        self,
        job_id: JobId,
        *,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> Job | JobRefused:
        """Queue a dead job again, or a retrying or scheduled one at once; due now.

        Without reset_attempts the count stays and the cap grows by one, so that it gets one try.
        A queued job is given back as it is.
        """

    async def delete_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Mark a queued or ended job deleted and empty its input, result and error."""

    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        """Move jobs whose lease has ended on, as `decide_loss` says; attempts close as `lost`."""

    async def next_lease_end(self) -> NextLeaseEnd:
        """Return when the first lease of a running job ends.

        Leases that were renewed count from their renewal, and jobs that ended do not count. Where
        very many have ended, the answer may be too early, and the next one is later.
        """

    async def promote_due(self, limit: int = MAX_SWEEP) -> int:
        """Queue scheduled and retrying jobs whose run time has come, earliest first."""

    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        """Remove ended jobs kept long enough, with attempts and events; run-out keys as well.

        Gives the number of jobs removed; at most `limit`.
        """

    async def get_job(self, job_id: JobId) -> Job | None:
        """Read one job."""

    async def list_jobs(
        self, which: JobFilter, *, before: JobId | None = None, limit: int = 100
    ) -> list[Job]:
        """One page of jobs by id, newest first, before an id."""

    async def count_jobs(self) -> list[JobCount]:
        """Jobs by queue and state, sorted; counts of nothing are left out."""

    async def job_events(self, job_id: JobId, limit: int = 1_000) -> list[JobEvent]:
        """What happened to a job: the newest, oldest first."""

    async def job_attempts(self, job_id: JobId, limit: int = 1_000) -> list[Attempt]:
        """The tries of a job: the newest, oldest first."""

    async def set_queue(self, settings: QueueSettings) -> None:
        """Store what is decided about a queue; ALL_QUEUES: about every queue.

        While ALL_QUEUES is paused no claim takes a job, whatever its queue. Its limits do not
        count.
        """

    async def list_queues(self) -> list[QueueSettings]:
        """Return the stored settings by name, ALL_QUEUES among them; see `queue_rules`."""

    async def beat(self, worker: WorkerInfo) -> None:
        """Register a worker, or say that it lives."""

    async def list_workers(self, limit: int = 100) -> list[WorkerInfo]:
        """Workers by id."""

    async def count_line(self, look: int = 1_000, limit: int = 1_000) -> Line:
        """Count queued jobs by queue and action at the head of each line.

        Of each of the first `limit` queues by name, the first `look` jobs are looked at.
        """

    async def remove_worker(self, worker: WorkerId) -> None:
        """Take a worker off the list; absent is fine."""

    async def remove_silent_workers(self, silent_ms: int, limit: int = 100) -> list[WorkerId]:
        """Take workers off the list that have said nothing for so long."""

    async def acquire_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Take a lock that is free, run out or the owner's own already; None: another has it."""

    async def extend_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Hold a lock for longer; None: it is not the owner's, or it ran out."""

    async def release_lock(self, name: str, owner: str) -> bool:
        """Give a lock back; False: it was not the owner's."""

    async def list_locks(
        self, name: str | None = None, *, after: str = "", limit: int = 100
    ) -> list[Lock]:
        """One page of the locks that somebody holds, by name, after a name; or the one named."""

    def listen(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` when jobs are inserted or cancelled, where the backend can; gives the end."""
