"""Verbs of the memory store for jobs, and the transaction that all its verbs use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock as ThreadLock
from typing import Any, Concatenate, ParamSpec, TypeVar

from duly.clock import Clock, SystemClock
from duly.engine.ids import Ids
from duly.engine.jobs import claims
from duly.engine.jobs import jobs as job_cases
from duly.engine.jobs import locks as lock_cases
from duly.engine.jobs import tokens as token_cases
from duly.engine.jobs import workers as workers_cases
from duly.engine.transaction import Tx
from duly.errors import InvalidInput
from duly.model.claims import ClaimRequest, Claims, NextLeaseEnd, ProgressNote, Renewed
from duly.model.events import Attempt, JobEvent
from duly.model.jobs import Job, JobId, NewJob, Token, WorkerId
from duly.model.locks import Lock
from duly.model.plans import PlanSettings
from duly.model.queues import JobCount, Line, QueueSettings, WorkerInfo
from duly.model.stored_jobs import MAX_SWEEP, Enqueued, JobFilter, JobRefused, KeyTaken, Retention
from duly.rules.outcomes import Finish
from duly.stores.memory.reads import jobs as job_rows
from duly.stores.memory.reads import workers
from duly.stores.memory.source import MemorySource
from duly.stores.memory.tables import Tables
from duly.stores.port import Wake
from duly.triggers.instants import to_ms

P = ParamSpec("P")
T = TypeVar("T")


class JobVerbs:
    """Every verb of JobStore except list_locks."""

    def __init__(self, clock: Clock | None = None, planning: PlanSettings | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._planning = PlanSettings() if planning is None else planning
        self._tables = Tables()
        self._lock = ThreadLock()
        self._wakes: list[Wake] = []

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Tables, int]]:
        """Yield the tables and the time under the lock; undo on an exception, else send hints."""
        with self._lock:
            before = self._tables.copy()
            try:
                yield self._tables, to_ms(self._clock.now())
            except BaseException:
                self._tables = before
                raise
            hints, self._tables.hints = self._tables.hints, {}
        for hint in hints:
            for wake in list(self._wakes):
                wake(hint)

    def _transact(
        self, use_case: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a use case of the engine as one transaction."""
        with self._transaction() as (tables, now_ms):
            source = MemorySource(tables, now_ms)
            tx = Tx(source, self._planning, Ids(self._clock))
            answer = use_case(tx, *args, **kwargs)
            source.commit(tx)
        return answer

    def listen(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` on inserts and cancel requests; return a function that stops it."""
        self._wakes.append(wake)

        def end() -> None:
            if wake in self._wakes:
                self._wakes.remove(wake)

        return end

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        """Store jobs with their first events; return an answer per job, in order."""
        return self._transact(job_cases.insert_jobs, jobs)

    def insert_jobs_in(
        self,
        transaction: Any,  # noqa: ARG002
        jobs: Sequence[NewJob],  # noqa: ARG002
    ) -> list[Enqueued | KeyTaken]:
        """Raise InvalidInput: there is no transaction to join."""
        raise InvalidInput("the memory store has no transactions to join; use insert_jobs()")

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        """Release expired leases, promote due jobs, then claim queued ones."""
        return self._transact(claims.claim_jobs, request)

    async def renew(
        self,
        worker: WorkerId,
        leases: Sequence[tuple[JobId, int]],
        lease_ms: int,
        tokens: Sequence[Token] = (),
        token_lease_ms: int = 10_000,
    ) -> Renewed:
        """Extend leases whose (id, fence) is still valid, and the worker's tokens."""
        return self._transact(claims.renew, worker, leases, lease_ms, tokens, token_lease_ms)

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        """Store how attempts ended; return the ids whose fence was void."""
        return self._transact(job_cases.finish, finishes)

    async def release_tokens(self, worker: WorkerId, tokens: Sequence[Token]) -> None:
        """Release a worker's tokens; leave those of other workers alone."""
        self._transact(token_cases.release_tokens, worker, tokens)

    async def start_jobs(self, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
        """Record that handlers are about to be called, and charge the attempts."""
        return self._transact(job_cases.start_jobs, worker, leases)

    async def note_progress(self, notes: Sequence[ProgressNote]) -> list[JobId]:
        """Store progress notes (JSON text) of running jobs; return the ids whose fence is void."""
        return self._transact(job_cases.note_progress, notes)

    async def cancel_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Cancel a job that has not begun; ask a running job's worker to stop it."""
        return self._transact(job_cases.cancel_job, job_id, by=by, reason=reason)

    async def retry_job(
        self,
        job_id: JobId,
        *,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> Job | JobRefused:
        """Queue a dead, retrying or scheduled job, due now."""
        return self._transact(
            job_cases.retry_job, job_id, reset_attempts=reset_attempts, by=by, reason=reason
        )

    async def delete_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Mark a queued or ended job as deleted and clear its content."""
        return self._transact(job_cases.delete_job, job_id, by=by, reason=reason)

    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        """Release jobs whose lease has expired; return how many."""
        return self._transact(job_cases.release_expired, limit)

    async def next_lease_end(self) -> NextLeaseEnd:
        """Return when the first lease of a running job ends."""
        return self._transact(job_cases.next_lease_end)

    async def promote_due(self, limit: int = MAX_SWEEP) -> int:
        """Queue scheduled and retrying jobs whose run time has come, earliest first."""
        return self._transact(job_cases.promote_all, limit)

    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        """Remove ended jobs past retention, with attempts and events, and expired keys."""
        return self._transact(job_cases.prune, retention, limit)

    async def get_job(self, job_id: JobId) -> Job | None:
        """Return one job."""
        with self._transaction() as (tables, _):
            return job_rows.get(tables, job_id)

    async def list_jobs(
        self, which: JobFilter, *, before: JobId | None = None, limit: int = 100
    ) -> list[Job]:
        """Return one page of jobs by id, newest first, before an id."""
        with self._transaction() as (tables, _):
            return job_rows.page(tables, which, before, limit)

    async def count_jobs(self) -> list[JobCount]:
        """Count jobs by queue and state."""
        with self._transaction() as (tables, _):
            return job_rows.count(tables)

    async def job_events(self, job_id: JobId, limit: int = 1_000) -> list[JobEvent]:
        """Return the newest `limit` events of a job, oldest first."""
        with self._transaction() as (tables, _):
            return job_rows.events(tables, job_id, limit)

    async def job_attempts(self, job_id: JobId, limit: int = 1_000) -> list[Attempt]:
        """Return the newest `limit` attempts of a job, oldest first."""
        with self._transaction() as (tables, _):
            return job_rows.attempts(tables, job_id, limit)

    async def set_queue(self, settings: QueueSettings) -> None:
        """Store the settings of a queue, or of all queues (ALL_QUEUES)."""
        self._transact(workers_cases.set_queue, settings)

    async def list_queues(self) -> list[QueueSettings]:
        """Return all stored queue settings by name, including ALL_QUEUES."""
        with self._transaction() as (tables, _):
            return [tables.queues[each] for each in sorted(tables.queues)]

    async def beat(self, worker: WorkerInfo) -> None:
        """Register a worker, or record its heartbeat."""
        self._transact(workers_cases.beat, worker)

    async def list_workers(self, limit: int = 100) -> list[WorkerInfo]:
        """Return workers by id."""
        with self._transaction() as (tables, _):
            return workers.page(tables, limit)

    async def count_line(self, look: int = 1_000, limit: int = 1_000) -> Line:
        """Count queued jobs by queue and action at the head of each queue."""
        with self._transaction() as (tables, now_ms):
            return Line(now_ms, workers.count_line(tables, look, limit))

    async def remove_worker(self, worker: WorkerId) -> None:
        """Remove a worker; absent is fine."""
        self._transact(workers_cases.remove_worker, worker)

    async def remove_silent_workers(self, silent_ms: int, limit: int = 100) -> list[WorkerId]:
        """Remove workers without a heartbeat for `silent_ms`; return their ids."""
        return self._transact(workers_cases.remove_silent_workers, silent_ms, limit)

    async def acquire_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Take a lock that is free, expired or already the owner's; None: another owner has it."""
        return self._transact(lock_cases.acquire_lock, name, owner, ttl_ms)

    async def extend_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Extend a lock; None: it is not the owner's or has expired."""
        return self._transact(lock_cases.extend_lock, name, owner, ttl_ms)

    async def release_lock(self, name: str, owner: str) -> bool:
        """Release a lock; False: it was not the owner's or had expired."""
        return self._transact(lock_cases.release_lock, name, owner)
