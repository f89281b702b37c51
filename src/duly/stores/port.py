"""The port to a database: atomic verbs, and what a backend can.

Every verb is one step, atomic per row; losing a race is a return value. Times are integer
milliseconds since 1970. `now_ms=None` means the database's own clock (or the clock injected into
the store for tests). All backends pass `duly.testing.conformance`. Bounded reads for pages are in
`stores.reads`.
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


class PlanStore(Protocol):
    """What Duly asks of a database for planning."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        """Take due rows of hand-over `jobs`; write ledger, jobs and advance in one transaction.

        An occurrence that the ledger has already is left alone, unless it was withdrawn or
        quarantined: of any number of planners, and however often it is repeated, one makes the job.
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
        """One page of a schedule's ledger by nominal time, newest first, before an instant.

        `since_ms` ends the pages at an instant, which is included; `states` names what to list.
        """

    async def find_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Read one schedule by its id."""

    async def run_now(self, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
        """Make one extra occurrence; None: there is no such schedule.

        The same request gives the same occurrence. The overlap policy decides, so it may be
        skipped. Misfires, pauses and the runs that are left do not concern it.
        """

    async def backfill(self, request: Backfill) -> BackfillReport | None:
        """Plan past times that are withdrawn, missed, skipped, quarantined or not in the ledger.

        Idempotent. None: there is no such schedule. InvalidInput: the range reaches behind
        LEDGER_MS or into the future, or no job can carry the definition.
        """

    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        """Pause a schedule whose last runs all failed, as many as its policy says; else None."""


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


class UpkeepStore(Protocol):
    """What Duly asks of a database for upkeep."""

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        """Remove what an owner left, at most `limit` of each kind, and look at so many rows.

        Audit entries about its things lose their target and detail. Schedules go as
        delete_schedule() says, then documents, jobs with their events, keys, ledger and schedule
        events. A running job is asked to stop and stays. Of other owners'
        things nothing changes but the name of who acted on them. InvalidInput for the system.
        """

    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        """Remove closed occurrences, facts and audit entries kept long enough, `limit` of each.

        Never, of a schedule that exists: its newest occurrence, one at or after its next time,
        any while it counts its runs, nor its newest fact of each kind or change of rule.
        """

    async def fold_counts(self, limit: int = 10_000) -> int:
        """Add up what count_occurrences() reads, `limit` rows at most; gives the rows saved.

        0 where there is little to save: nothing is written then.
        """

    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        """Delete finished schedules: those kept long enough, and those that are to be deleted then.

        One step looks at `limit` of them. Left alone are schedules with a job or a dispatch that
        has not ended, and those that the code declares. An event `deleted` tells of each; its
        ledger stays for its own retention.
        """

    async def zone_rules(self) -> str | None:
        """The version of the zone rules that all next times are right by; None: not known."""

    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        """Move rows of zoned schedules whose next time is another by this process's zone rules.

        The right time is the first after the ledger's last and after now; a time that has come is
        left alone. The step that ends the walk stores `rules` as zone_rules(), where given.
        """


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can, asked instead of its name."""

    joins_transaction: bool
    """Verbs that take `transaction` may run inside the caller's own transaction."""
    many_processes: bool
    """Several processes may work on one database."""
    has_clock: bool
    """The backend's own clock decides what is due."""
    notifies: bool
    """listen() hears of new jobs, so that a worker need not ask often."""


class ScheduleIndex(Protocol):
    """The public index, for applications that keep their definitions elsewhere."""

    async def upsert(self, row: IndexRow) -> None:
        """Store the row of its key, replacing the one before; parses no trigger."""

    async def claim_due(
        self,
        now_ms: int | None = None,
        limit: int = CLAIM_LIMIT,
        flow: str | None = None,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        """Take rows whose run time has come, oldest first, and advance them in one transaction."""

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
    """Everything Duly asks of a database."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can."""

    async def now_ms(self) -> int:
        """The clock that decides."""

    async def close(self) -> None:
        """Let go of connections and threads; closing twice is fine."""

    async def get_document(self, collection: str, scope: str, name: str) -> Document | None:
        """Read one document."""

    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        """Store one document and its index entries, by compare-and-set on its version."""

    async def delete_document(
        self, collection: str, scope: str, name: str, expected_version: int | None = None
    ) -> Document | Refused:
        """Remove one document and its index entries; gives what was removed."""

    async def list_documents(
        self, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[Document]:
        """One page of a scope's documents by name, after a name."""

    async def count_documents(self, collection: str, scope: str) -> int:
        """How many documents a scope holds."""

    async def find_documents(
        self, collection: str, attribute: str, value: str, limit: int = 100
    ) -> list[Document]:
        """Documents of any scope by an indexed attribute: one indexed query, never a scan."""

    async def get_schedule(self, key: ScheduleKey) -> Schedule | None:
        """Read one schedule."""

    async def list_schedules(
        self, flow: str, scope: str, *, after: str = "", limit: int = 100
    ) -> list[Schedule]:
        """One page of a scope's schedules by name, after a name."""

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        """One page of schedules of all scopes by flow, name and scope, after a key.

        Every page reads an index in its order, however much is stored. Passed over are, inside one
        scope, schedules of another state or hand-over; of a hand-over, schedules of another state;
        and where schedules of hand-over `jobs` are asked for, the others.
        """

    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        """The index rows of schedules, of those that have a next time."""

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Store definitions with their index rows and events, in one transaction.

        A row whose timing did not change keeps its next time; otherwise the next time is the first
        after now. The index row is written before the document (the lock order).
        """

    def put_schedules_in(
        self, transaction: Any, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """The same inside the caller's own transaction, which it never aborts, commits or ends.

        Plain, not async: the caller's connection must stay on the caller's thread. Refused with
        InvalidInput where Capabilities.joins_transaction is false.
        """

    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        """Remove a schedule, its row and its document in one transaction; its events stay."""

    async def schedule_events(
        self, schedule_id: ScheduleId, limit: int = 100
    ) -> list[ScheduleEvent]:
        """The newest facts about a schedule, oldest first."""

    async def list_rows(
        self, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
    ) -> list[IndexRow]:
        """Index rows in the order they will be claimed."""

    async def list_quarantined(self, limit: int = 100) -> list[Quarantined]:
        """Rows that cannot be evaluated."""

    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        """Rebuild the index from documents and ledger; of the named flows only, where named."""

    async def index_health(self) -> IndexHealth:
        """Count what is stored against what is indexed."""
