"""The port to a database: its atomic verbs and its capabilities.

Every verb is one step, atomic per row; losing a race is a return value. Times are integer
milliseconds since 1970. `now_ms=None` means the database's own clock (or the clock injected into
the store for tests). All backends pass `duly.testing.conformance`. Bounded reads for monitoring
are in `stores.reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from duly.model.claims import ClaimRequest, Claims, NextLeaseEnd, ProgressNote, Renewed
from duly.model.dispatches import (
    DispatchAnswer,
    DispatchClaim,
    Dispatching,
    Fire,
    FireAnswer,
)
from duly.model.documents import Document, DocumentWrite, Refused, Written
from duly.model.events import Attempt, JobEvent
from duly.model.index import CLAIM_LIMIT, IndexHealth, Quarantined, ReconcileReport
from duly.model.index_rows import Claimed, IndexRow
from duly.model.jobs import (
    Job,
    JobId,
    NewJob,
    Token,
    WorkerId,
)
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.locks import Lock
from duly.model.plans import Backfill, BackfillReport, PlanReport, PlanRequest
from duly.model.queues import JobCount, Line, QueueSettings, WorkerInfo
from duly.model.schedule_writes import (
    ScheduleEvent,
    ScheduleFilter,
    ScheduleKey,
    ScheduleWrite,
    ScheduleWritten,
)
from duly.model.schedules import Schedule, ScheduleId
from duly.model.stored_jobs import MAX_SWEEP, Enqueued, JobFilter, JobRefused, KeyTaken, Retention
from duly.model.upkeep import (
    MAX_ZONED,
    Erased,
    LedgerPruned,
    LedgerRetention,
    Recomputed,
    SchedulesPruned,
)
from duly.rules.outcomes import Finish
from duly.stores.reads import LedgerStore, MonitoringReads

Wake = Callable[[str], None]
"""Called from any thread with `queue:<name>` or `cancel:<job id>`: a hint that may be lost.

`queue:*` means that earlier hints may have been missed.
"""


class JobStore(Protocol):
    """Verbs of a database for jobs, queues, workers and locks."""

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        """Store jobs with first events in one transaction; return an answer per job, in order.

        A job with a future run time is `scheduled`, any other `queued`. An existing id is left
        unchanged. For an idempotency key that is taken and has not expired, the answer is the
        existing job if the input is the same, otherwise KeyTaken.
        """

    def insert_jobs_in(self, transaction: Any, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        """Insert inside the caller's own transaction, which is never aborted or ended here."""

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        """Release expired leases, promote due jobs, then claim queued ones, in one transaction."""

    async def renew(
        self,
        worker: WorkerId,
        leases: Sequence[tuple[JobId, int]],
        lease_ms: int,
        tokens: Sequence[Token] = (),
        token_lease_ms: int = 10_000,
    ) -> Renewed:
        """Extend leases whose (id, fence) is still valid, and the worker's tokens."""

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        """Store how attempts ended; return the ids whose fence was void and are unchanged."""

    async def start_jobs(self, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
        """Record that handlers are about to be called, and charge the attempts.

        Only for jobs whose start mode is not AHEAD. A job whose (id, fence) is void, or that was
        asked to stop, is not started and is named in the answer. Repeating it changes nothing.
        """

    async def release_tokens(self, worker: WorkerId, tokens: Sequence[Token]) -> None:
        """Release a worker's tokens; leave those of other workers alone."""

    async def note_progress(self, notes: Sequence[ProgressNote]) -> list[JobId]:
        """Store progress notes (JSON text) of running jobs; return the ids whose fence is void."""

    async def cancel_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Cancel a job that has not begun; ask a running job's worker to stop it (`cancel_asked`).

        A cancelled job is returned unchanged; any other state is refused.
        """

    async def retry_job(
        self,
        job_id: JobId,
        *,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> Job | JobRefused:
        """Queue a dead, retrying or scheduled job, due now.

        Without reset_attempts the count stays, and max_attempts is raised if needed to allow one
        more attempt. A queued job is returned unchanged; any other state is refused.
        """

    async def delete_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Mark a queued or ended job as deleted and clear its input, result and error."""

    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        """Release jobs with an expired lease, as `decide_loss` decides; attempts end as `lost`."""

    async def next_lease_end(self) -> NextLeaseEnd:
        """Return when the first lease of a running job ends.

        Renewed leases count with their new end, and ended jobs do not count. After very many jobs
        have ended, the answer may be too early; a later call corrects it.
        """

    async def promote_due(self, limit: int = MAX_SWEEP) -> int:
        """Queue scheduled and retrying jobs whose run time has come, earliest first."""

    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        """Remove ended jobs past retention, with attempts and events, and expired idempotency keys.

        Return the number of jobs removed; at most `limit`.
        """

    async def get_job(self, job_id: JobId) -> Job | None:
        """Return one job."""

    async def list_jobs(
        self, which: JobFilter, *, before: JobId | None = None, limit: int = 100
    ) -> list[Job]:
        """Return one page of jobs by id, newest first, before an id."""

    async def count_jobs(self) -> list[JobCount]:
        """Count jobs by queue and state, sorted; zero counts are left out."""

    async def job_events(self, job_id: JobId, limit: int = 1_000) -> list[JobEvent]:
        """Return the newest `limit` events of a job, oldest first."""

    async def job_attempts(self, job_id: JobId, limit: int = 1_000) -> list[Attempt]:
        """Return the newest `limit` attempts of a job, oldest first."""

    async def set_queue(self, settings: QueueSettings) -> None:
        """Store the settings of a queue, or of all queues (ALL_QUEUES).

        While ALL_QUEUES is paused, no claim takes a job of any queue. Its limits are ignored.
        """

    async def list_queues(self) -> list[QueueSettings]:
        """Return all stored queue settings by name, including ALL_QUEUES; see `queue_rules`."""

    async def beat(self, worker: WorkerInfo) -> None:
        """Register a worker, or record its heartbeat."""

    async def list_workers(self, limit: int = 100) -> list[WorkerInfo]:
        """Return workers by id."""

    async def count_line(self, look: int = 1_000, limit: int = 1_000) -> Line:
        """Count queued jobs by queue and action at the head of each queue.

        The first `look` jobs of each of the first `limit` queues by name are read.
        """

    async def remove_worker(self, worker: WorkerId) -> None:
        """Remove a worker; absent is fine."""

    async def remove_silent_workers(self, silent_ms: int, limit: int = 100) -> list[WorkerId]:
        """Remove workers without a heartbeat for `silent_ms`; return their ids."""

    async def acquire_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Take a lock that is free, expired or already the owner's; None: another owner has it."""

    async def extend_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Extend a lock; None: it is not the owner's or has expired."""

    async def release_lock(self, name: str, owner: str) -> bool:
        """Release a lock; False: it was not the owner's or had expired."""

    async def list_locks(
        self, name: str | None = None, *, after: str = "", limit: int = 100
    ) -> list[Lock]:
        """Return one page of held locks by name, after a name; or the lock `name`, if held."""

    def listen(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` on inserts and cancel requests, if supported; return a function to stop."""


class PlanStore(Protocol):
    """Verbs of a database for planning."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        """Take due rows of hand-over `jobs`; write ledger, jobs and advance in one transaction.

        An occurrence already in the ledger is left alone, unless it was withdrawn or quarantined.
        So with any number of planners and repetitions, only one job is made.
        """

    async def list_occurrences(
        self,
        schedule_id: ScheduleId,
        *,
        before_ms: int | None = None,
        since_ms: int | None = None,
        states: Collection[OccurrenceState] | None = None,
        limit: int = 100,
    ) -> list[Occurrence]:
        """Return one page of a schedule's ledger by nominal time, newest first, before an instant.

        `since_ms` is an inclusive lower bound; `states` filters by state (None: all).
        """

    async def find_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Return one schedule by its id."""

    async def run_now(self, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
        """Make one extra occurrence that runs now; None: there is no such schedule.

        A repeated request returns the same occurrence. The overlap policy applies, so it may be
        skipped. Misfire policy, pause and `max_runs` do not apply.
        """

    async def backfill(self, request: Backfill) -> BackfillReport | None:
        """Plan past times that are withdrawn, missed, skipped, quarantined or not in the ledger.

        Idempotent. None: there is no such schedule. InvalidInput: the range starts more than
        LEDGER_MS ago or ends in the future, or the definition cannot be converted to a job.
        """

    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        """Pause a schedule if its last `pause_after_failures` runs all failed; else return None."""


class DispatchStore(Protocol):
    """Verbs of a database for hand-over by HTTP."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Claim due rows of hand-over `http`, and dispatches whose lease or delay has ended.

        Ledger rows (`dispatching`, with claim id and lease) and row advances are written in one
        transaction; misfires follow the schedule's policy. Dispatches in the ledger come before
        new rows. Above the limit, those free for longest are taken; the answer is in order of run
        time. After a lease has ended, at_least_once is posted again; at_most_once becomes
        `failed (unknown)` and is not returned.
        """

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Store the outcomes of posts; return how many dispatches this claim still held.

        A ledger row that the endpoint has moved to `fired` or later stays unchanged. After
        NOT_FOUND_LIMIT consecutive answers that the endpoint does not know the schedule, its index
        row is quarantined; an answer `closed` or an edit of the row resets the count.
        """

    async def fire(self, request: Fire) -> FireAnswer:
        """Move an occurrence to `fired` and make its job, in one transaction.

        A time is free if it has no row or is dispatching, withdrawn or quarantined; any later
        state is a duplicate. A job that has to wait for an earlier run is made too; its row is
        `planned` until it begins.

        The schedule need not be stored. A stored one must be active; for a finished one, only an
        occurrence held by a tick is fired. With `max_runs`, the occurrence is charged unless the
        tick that holds it has done so. The dispatch of the last run finishes a schedule; an
        external one is also finished by the last nominal time of its trigger.
        """


class UpkeepStore(Protocol):
    """Verbs of a database for upkeep."""

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        """Remove an owner's data in steps that remove and read up to `limit` items each.

        Audit entries about its objects lose target and detail. Schedules are deleted as by
        delete_schedule(), then documents, jobs with their events, keys, ledger and schedule
        events. A running job is asked to stop and stays. Of other owners' data, only the name of
        the actor is removed. InvalidInput: the scope is the system's.
        """

    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        """Remove closed occurrences, schedule events and audit entries past retention, by steps.

        A step reads up to `limit` of a kind. Never removed while the schedule exists: its newest
        occurrence, any at or after its next time, any while its runs are counted in the ledger,
        its newest event of each kind, and its newest change of trigger.
        """

    async def fold_counts(self, limit: int = 10_000) -> int:
        """Compact the counts that count_occurrences() reads, up to `limit` rows; return rows saved.

        0 if there is little to save; nothing is written then.
        """

    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        """Delete finished schedules that are past retention or have `delete_after_completion`.

        One step reads up to `limit` of them. Schedules with an open job or dispatch, and those
        declared in code, are left alone. Each deletion records an event `deleted`; the ledger
        stays for its own retention.
        """

    async def zone_rules(self) -> str | None:
        """Return the time-zone version that all next times were computed with; None: unknown."""

    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        """Recompute rows whose next time differs under this process's time-zone rules.

        The right time is the first after now and after the ledger's last; a due time is left
        alone. The last step stores `rules`, if given, as zone_rules().
        """


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a backend; code checks these, never the backend's name."""

    joins_transaction: bool
    """Verbs that take `transaction` may run inside the caller's own transaction."""
    many_processes: bool
    """Several processes may work on one database."""
    has_clock: bool
    """The backend's own clock decides what is due."""
    notifies: bool
    """listen() reports new jobs, so that a worker need not poll often."""


class ScheduleIndex(Protocol):
    """The public index, for applications that store their definitions elsewhere."""

    async def upsert(self, row: IndexRow) -> None:
        """Store a row under its key, replacing an earlier one; the trigger is not parsed."""

    async def claim_due(
        self,
        now_ms: int | None = None,
        limit: int = CLAIM_LIMIT,
        flow: str | None = None,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        """Claim due rows, oldest first, and advance them in one transaction."""

    async def remove(self, key: ScheduleKey) -> None:
        """Remove the row of a key; absent is fine."""


class Store(
    ScheduleIndex,
    JobStore,
    PlanStore,
    DispatchStore,
    LedgerStore,
    MonitoringReads,
    UpkeepStore,
    Protocol,
):
    """All verbs of a database."""

    @property
    def capabilities(self) -> Capabilities:
        """Return the backend's capabilities."""

    async def now_ms(self) -> int:
        """Return the current time of the clock that decides what is due."""

    async def close(self) -> None:
        """Close connections and stop threads; closing twice is fine."""

    async def get_document(self, collection: str, scope: str, name: str) -> Document | None:
        """Return one document."""

    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        """Store one document and its index entries, by compare-and-set on its version."""

    async def delete_document(
        self, collection: str, scope: str, name: str, expected_version: int | None = None
    ) -> Document | Refused:
        """Remove one document and its index entries; return the removed document."""

    async def list_documents(
        self, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[Document]:
        """Return one page of a scope's documents by name, after a name."""

    async def count_documents(self, collection: str, scope: str) -> int:
        """Return the number of documents of a scope."""

    async def find_documents(
        self, collection: str, attribute: str, value: str, limit: int = 100
    ) -> list[Document]:
        """Return documents of any scope by an indexed attribute; never scans."""

    async def get_schedule(self, key: ScheduleKey) -> Schedule | None:
        """Return one schedule."""

    async def list_schedules(
        self, flow: str, scope: str, *, after: str = "", limit: int = 100
    ) -> list[Schedule]:
        """Return one page of a scope's schedules by name, after a name."""

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        """Return one page of schedules of all scopes by flow, name and scope, after a key.

        Every page is a range of an index, however much is stored. Filtered out while reading are:
        within one scope, schedules of another state or hand-over; for a hand-over, those of another
        state; and for hand-over `jobs`, those of another hand-over.
        """

    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        """Return the index rows of the schedules that have a next time, by id."""

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Store definitions with their index rows and events in one transaction; answer in order.

        A row with unchanged timing keeps its next time; otherwise the next time is the first after
        now. The index row is written before the document (the lock order).
        """

    def put_schedules_in(
        self, transaction: Any, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Store inside the caller's own transaction, which is never aborted or ended here.

        Not async: the caller's connection must stay on the caller's thread. Raises InvalidInput if
        Capabilities.joins_transaction is false.
        """

    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        """Remove a schedule, its row and its document in one transaction; its events stay."""

    async def schedule_events(
        self, schedule_id: ScheduleId, limit: int = 100
    ) -> list[ScheduleEvent]:
        """Return the newest `limit` events of a schedule, oldest first."""

    async def list_rows(
        self, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
    ) -> list[IndexRow]:
        """Return index rows in claim order."""

    async def list_quarantined(self, limit: int = 100) -> list[Quarantined]:
        """Return the rows that cannot be evaluated, with their errors."""

    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        """Rebuild the index from documents and ledger, of the named flows or all (None)."""

    async def index_health(self) -> IndexHealth:
        """Compare stored schedules with index rows; return the counts."""
