"""The job verbs of the async port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from duly.engine.ids import Ids
from duly.engine.jobs import claims
from duly.engine.jobs import jobs as job_cases
from duly.engine.jobs import locks as lock_cases
from duly.engine.jobs import tokens as token_cases
from duly.engine.jobs import workers as worker_cases
from duly.model.claims import ClaimRequest, Claims, NextLeaseEnd, ProgressNote, Renewed
from duly.model.events import Attempt, JobEvent
from duly.model.jobs import Job, JobId, NewJob, Token, WorkerId
from duly.model.locks import Lock
from duly.model.queues import JobCount, Line, QueueSettings, WorkerInfo
from duly.model.stored_jobs import MAX_SWEEP, Enqueued, JobFilter, JobRefused, KeyTaken, Retention
from duly.rules.outcomes import Finish
from duly.stores.port import Wake
from duly.stores.sql.fast import claims as job_claims
from duly.stores.sql.fast import heartbeats, inserts, moves
from duly.stores.sql.fast import tokens as job_tokens
from duly.stores.sql.rows import jobs as job_rows
from duly.stores.sql.rows import line, markers
from duly.stores.sql.source import transact
from duly.stores.sql.transactions import Transactions


class JobVerbs(Transactions):
    """The job verbs on one relational database."""

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        """Store jobs with their first events; return a result per job."""
        return await self._fast_or_engine(inserts.insert_jobs, job_cases.insert_jobs, jobs)

    def insert_jobs_in(self, transaction: Any, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        """Do the same inside the caller's own transaction."""
        if self.has_fast_paths:
            return self._joined(transaction, inserts.insert_jobs, jobs)
        return self._joined(transaction, transact, Ids(), job_cases.insert_jobs, jobs)

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        """Rescue and promote jobs, then claim queued ones."""
        return await self._fast_or_engine(job_claims.claim_jobs, claims.claim_jobs, request)

    async def renew(
        self,
        worker: WorkerId,
        leases: Sequence[tuple[JobId, int]],
        lease_ms: int,
        tokens: Sequence[Token] = (),
        token_lease_ms: int = 10_000,
    ) -> Renewed:
        """Extend tokens and the leases that are still held."""
        lasting = (lease_ms, tokens, token_lease_ms)
        return await self._fast_or_engine(job_claims.renew, claims.renew, worker, leases, *lasting)

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        """Store the results of attempts; return the ids whose fence was void."""
        return await self._fast_or_engine(job_claims.finish, job_cases.finish, finishes)

    async def release_tokens(self, worker: WorkerId, tokens: Sequence[Token]) -> None:
        """Release tokens."""
        await self._fast_or_engine(
            job_tokens.release_tokens, token_cases.release_tokens, worker, tokens
        )

    async def start_jobs(self, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
        """Record that handlers are about to be called, and charge the attempts."""
        return await self._fast_or_engine(
            job_claims.start_jobs, job_cases.start_jobs, worker, leases
        )

    async def note_progress(self, notes: Sequence[ProgressNote]) -> list[JobId]:
        """Store progress of running jobs; return the ids whose fence is void."""
        return await self._fast_or_engine(job_claims.note_progress, job_cases.note_progress, notes)

    async def cancel_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Cancel a job that has not begun, or ask the worker of a running one to stop it."""
        return await self._transact(job_cases.cancel_job, job_id, by=by, reason=reason)

    async def retry_job(
        self,
        job_id: JobId,
        *,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> Job | JobRefused:
        """Queue a job again, due now."""
        return await self._transact(
            job_cases.retry_job, job_id, reset_attempts=reset_attempts, by=by, reason=reason
        )

    async def delete_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        """Mark a job deleted and clear its contents."""
        return await self._transact(job_cases.delete_job, job_id, by=by, reason=reason)

    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        """Rescue jobs whose lease has ended; return their number."""
        return await self._transact(job_cases.release_expired, limit)

    async def next_lease_end(self) -> NextLeaseEnd:
        """Return when the first lease of a running job ends."""
        return await self._run(markers.next_lease_end)

    async def promote_due(self, limit: int = MAX_SWEEP) -> int:
        """Queue jobs whose run time has come; return their number."""
        return await self._fast_or_engine(moves.promote_due, job_cases.promote_all, limit)

    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        """Remove ended jobs past their retention; return their number."""
        return await self._run_upkeep(
            lambda db: transact(db, Ids(), job_cases.prune, retention, limit)
        )

    async def get_job(self, job_id: JobId) -> Job | None:
        """Return one job, or None."""
        return await self._run(job_rows.get_job, job_id)

    async def list_jobs(
        self, which: JobFilter, *, before: JobId | None = None, limit: int = 100
    ) -> list[Job]:
        """Return one page of jobs by id, newest first."""
        return await self._run(job_rows.list_jobs, which, before=before, limit=limit)

    async def count_jobs(self) -> list[JobCount]:
        """Count jobs by queue and state."""
        return await self._run_upkeep(job_rows.count_jobs)

    async def job_events(self, job_id: JobId, limit: int = 1_000) -> list[JobEvent]:
        """Return the events of a job."""
        return await self._run(job_rows.job_events, job_id, limit)

    async def job_attempts(self, job_id: JobId, limit: int = 1_000) -> list[Attempt]:
        """Return the attempts of a job."""
        return await self._run(job_rows.job_attempts, job_id, limit)

    async def set_queue(self, settings: QueueSettings) -> None:
        """Store the settings of a queue."""
        await self._transact(worker_cases.set_queue, settings)

    async def list_queues(self) -> list[QueueSettings]:
        """Return all configured queues."""
        return await self._run(heartbeats.list_queues)

    async def beat(self, worker: WorkerInfo) -> None:
        """Register a worker or record its heartbeat."""
        await self._fast_or_engine(heartbeats.beat, worker_cases.beat, worker)

    async def list_workers(self, limit: int = 100) -> list[WorkerInfo]:
        """Return workers by id."""
        return await self._run(heartbeats.list_workers, limit)

    async def count_line(self, look: int = 1_000, limit: int = 1_000) -> Line:
        """Count queued jobs by queue and action at the head of each queue."""
        return await self._run(line.count_line, look, limit)

    async def remove_worker(self, worker: WorkerId) -> None:
        """Deregister a worker."""
        await self._transact(worker_cases.remove_worker, worker)

    async def remove_silent_workers(self, silent_ms: int, limit: int = 100) -> list[WorkerId]:
        """Deregister workers without a heartbeat for `silent_ms`; return their ids."""
        return await self._transact(worker_cases.remove_silent_workers, silent_ms, limit)

    async def acquire_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Take a free lock; None: another owner holds it."""
        return await self._transact(lock_cases.acquire_lock, name, owner, ttl_ms)

    async def extend_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        """Extend a held lock; None: it was lost."""
        return await self._transact(lock_cases.extend_lock, name, owner, ttl_ms)

    async def release_lock(self, name: str, owner: str) -> bool:
        """Release a lock; False: it was not the owner's."""
        return await self._transact(lock_cases.release_lock, name, owner)

    def listen(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` for new jobs if the database notifies; return the stop function.

        All listeners share one connection.
        """
        with self._listening:
            self._wakes.append(wake)
            if self._end_listening is None:
                self._end_listening = self._dialect.listen(
                    self._url, self._options, self._tables, self._tell_all
                )
            else:
                wake("queue:*")  # covers notifications from before it listened

        def end() -> None:
            with self._listening:
                if wake in self._wakes:
                    self._wakes.remove(wake)
                if not self._wakes and self._end_listening is not None:
                    self._end_listening()
                    self._end_listening = None

        return end

    def _tell_all(self, hint: str) -> None:
        for wake in list(self._wakes):
            wake(hint)
