"""Operator access to jobs, schedules, queues, workers and locks.

Results are redacted views, never payloads. Every loop over many jobs is bounded and returns where
it stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property, partial

from msgspec import UNSET, UnsetType

from duly.engine.upkeep.zone_version import rules_in_use
from duly.errors import InvalidInput, NotFound, shown
from duly.flows.flow import Action
from duly.flows.job_answers import granted, no_such_job
from duly.model.index import MAX_PAGE, IndexHealth, ReconcileReport
from duly.model.jobs import ALL_QUEUES, Job, JobId, JobState, check_queue
from duly.model.queues import JobCount, QueueSettings
from duly.model.scopes import Scope
from duly.model.stored_jobs import MAX_SWEEP, JobFilter, JobRefused, Retention
from duly.model.upkeep import Erased, Recomputed
from duly.operate.health import Health, HealthInputs, judge
from duly.operate.job_views import (
    JobDetail,
    JobView,
    LockView,
    QueueView,
    WorkerView,
    view_detail,
    view_job,
    view_lock,
    view_queue,
    view_worker,
)
from duly.operate.monitoring import MonitoringAdmin
from duly.operate.redaction.secret_names import EVERY
from duly.operate.schedule_admin import ScheduleAdmin, Which
from duly.operate.unserved import ALIVE_MS, MAX_WORKERS, look_for_unserved
from duly.operate.why import Answer
from duly.rules.queue_settings import QueueRules
from duly.stores.port import Store

EVERY_JOB = JobFilter()
PAGE = 100
MAX_QUEUE_COUNT = 10_000
"""Limit of a queue's count in one state."""
MAX_MANY = 10_000
"""Limit of jobs per call."""
MAX_LOOKS = 20
"""Limit of bounded searches per count."""
MAX_LIMIT = 100_000
MAX_NOTE = 1_000


@dataclass(frozen=True, slots=True)
class ManyReport:
    """Result of a bulk action."""

    done: int
    refused: int
    """Jobs in a state that does not allow the action, or gone."""
    next_before: JobId | None
    """Where to continue; None: no more jobs match the filter."""


@dataclass(frozen=True, slots=True)
class ManyCount:
    """Number of jobs that a bulk action would process."""

    jobs: int
    is_exact: bool
    """False: there may be more than were counted."""


class Admin:
    """Operator interface to one store; every view is redacted."""

    def __init__(self, store: Store, *, actions: Mapping[str, Action] | None = None) -> None:
        self._store = store
        self._actions = {} if actions is None else actions

    @cached_property
    def schedules(self) -> ScheduleAdmin:
        """The same for schedules of every owner."""
        return ScheduleAdmin(self._store, self._actions)

    @cached_property
    def monitoring(self) -> MonitoringAdmin:
        """Reads for dashboard and metrics, and the audit log."""
        return MonitoringAdmin(self._store)

    async def why(self, schedule: Which, at: datetime) -> Answer:
        """Explain why a schedule did or did not fire at an instant; a deleted one by its id."""
        return await self.schedules.why(schedule, at)

    async def jobs(
        self, which: JobFilter = EVERY_JOB, *, before: JobId | None = None, limit: int = PAGE
    ) -> list[JobView]:
        """Return one page of jobs, newest first; `before` is the last id of the previous page."""
        found = await self._store.list_jobs(which, before=before, limit=limit)
        return [self._view(job) for job in found]

    async def job_page(
        self, which: JobFilter = EVERY_JOB, *, before: JobId | None = None, limit: int = PAGE
    ) -> tuple[list[JobView], JobId | None]:
        """Return the matches of a bounded search, and where it ended; None: no more jobs.

        Whatever the filter, only a few thousand jobs are scanned.
        """
        found = await self._store.search_jobs(which, before=before, limit=limit)
        return [self._view(job) for job in found.jobs], found.next_before

    async def job(self, job_id: JobId) -> JobDetail:
        """Return one job with its events and attempts, or raise NotFound."""
        job = await self._store.get_job(job_id)
        if job is None:
            raise no_such_job(job_id)
        events = await self._store.job_events(job_id)
        attempts = await self._store.job_attempts(job_id)
        return view_detail(job, events, attempts, self._redact(job))

    async def counts(self) -> list[JobCount]:
        """Count jobs by queue and state; reads every job, unlike queues()."""
        return await self._store.count_jobs()

    async def cancel(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> JobView:
        """Cancel a job that has not begun; ask a running job to stop."""
        answer = await self._store.cancel_job(job_id, by=by, reason=reason)
        return self._view(granted(answer, "cancelled"))

    async def retry(
        self,
        job_id: JobId,
        *,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> JobView:
        """Queue a dead job again, or a waiting one immediately."""
        answer = await self._store.retry_job(
            job_id, reset_attempts=reset_attempts, by=by, reason=reason
        )
        return self._view(granted(answer, "retried"))

    async def delete(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> JobView:
        """Clear the input, result and error of a queued or ended job."""
        answer = await self._store.delete_job(job_id, by=by, reason=reason)
        return self._view(granted(answer, "deleted"))

    async def count_many(self, which: JobFilter, *, limit: int = 1_000) -> ManyCount:
        """Count the jobs of a filter, up to `limit`, by a bounded scan of the newest."""
        _check("limit", limit, MAX_MANY)
        _check_narrow(which)
        counted, before = 0, None
        for _ in range(MAX_LOOKS):
            size = min(PAGE, limit - counted)
            page = await self._store.search_jobs(which, before=before, limit=size)
            counted, before = counted + len(page.jobs), page.next_before
            if before is None or counted >= limit:
                break
        return ManyCount(counted, before is None)

    async def cancel_many(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 1_000,
        by: str | None = None,
        reason: str | None = None,
    ) -> ManyReport:
        """Cancel the jobs of a filter, newest first."""
        request = partial(self._store.cancel_job, by=by, reason=reason)
        return await self._many(which, before, limit, request)

    async def retry_many(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 1_000,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> ManyReport:
        """Queue the jobs of a filter again: dead ones, unless the filter names another state."""
        _check_filter(which)
        dead = which if which.state is not None else replace(which, state=JobState.DEAD)
        request = partial(
            self._store.retry_job, reset_attempts=reset_attempts, by=by, reason=reason
        )
        return await self._many(dead, before, limit, request)

    async def delete_many(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 1_000,
        by: str | None = None,
        reason: str | None = None,
    ) -> ManyReport:
        """Clear the queued or ended jobs of a filter, newest first."""
        request = partial(self._store.delete_job, by=by, reason=reason)
        return await self._many(which, before, limit, request)

    async def cleanup(self, retention: Retention | None = None, limit: int = 1_000) -> int:
        """Remove ended jobs past their retention; return how many, at most `limit`."""
        kept = Retention() if retention is None else retention
        _check("limit", limit, MAX_LIMIT)
        removed = 0
        while removed < limit:
            batch = min(MAX_SWEEP, limit - removed)
            count = await self._store.prune(kept, batch)
            removed += count
            if count < batch:
                break
        return removed

    async def erase(
        self, scope: Scope | str, on_step: Callable[[Erased], None] | None = None
    ) -> Erased:
        """Remove all data of an owner; call `on_step` with the sum so far after every step.

        Running jobs are asked to stop and counted as `running`: erase again when they have ended.
        """
        total = Erased()
        while True:
            total += await self._store.erase(str(scope), cursor=total.cursor)
            if on_step is not None:
                on_step(total)
            if total.cursor is None:
                return total

    async def recompute_zones(
        self, on_step: Callable[[Recomputed], None] | None = None
    ) -> Recomputed:
        """Recompute next times by this process's zone rules; the keeper does this too."""
        total = Recomputed()
        while True:
            total += await self._store.recompute_zones(rules_in_use(), cursor=total.cursor)
            if on_step is not None:
                on_step(total)
            if total.cursor is None:
                return total

    async def queues(self, *, most: int = MAX_QUEUE_COUNT) -> list[QueueView]:
        """Return queues with open or dead jobs, and configured ones, by name; at most 1,000.

        No count goes beyond `most`; those that stopped there are named in `capped`.
        """
        counts = await self._store.count_queues(most, MAX_PAGE)
        rules = QueueRules(await self._store.list_queues())
        return [view_queue(rules.of(each.queue), each) for each in counts]

    async def pause(self, queue: str, note: str | None = None, *, by: str | None = None) -> None:
        """Stop workers from claiming jobs of a queue; running jobs continue."""
        requested = _pause_note(note, by)
        settings = await self._settings(queue)
        await self._store.set_queue(replace(settings, is_paused=True, note=requested))

    async def resume(self, queue: str) -> None:
        """End the pause of one queue; a pause of all queues still applies."""
        settings = await self._settings(queue)
        await self._store.set_queue(replace(settings, is_paused=False, note=None))

    async def pause_all(self, note: str | None = None, *, by: str | None = None) -> None:
        """Stop workers from claiming jobs of any queue, including queues first used later."""
        everything = QueueSettings(ALL_QUEUES, is_paused=True, note=_pause_note(note, by))
        await self._store.set_queue(everything)

    async def resume_all(self) -> None:
        """End a pause of all queues; queues paused by name stay paused."""
        await self._store.set_queue(QueueSettings(ALL_QUEUES))

    async def all_paused(self) -> QueueSettings | None:
        """Return the pause of all queues, if there is one."""
        everything = QueueRules(await self._store.list_queues()).all
        return everything if everything.is_paused else None

    async def limit(
        self,
        queue: str,
        *,
        job_limit: int | UnsetType | None = UNSET,
        workspace_limit: int | UnsetType = UNSET,
    ) -> None:
        """Set the concurrency limits of a queue; limits that are not given are unchanged."""
        settings = await self._settings(queue)
        if job_limit is not UNSET:
            if job_limit is not None:
                _check("job_limit", job_limit, MAX_LIMIT, "; to stop a queue, pause() it")
            settings = replace(settings, job_limit=job_limit)
        if workspace_limit is not UNSET:
            _check("workspace_limit", workspace_limit, MAX_LIMIT)
            settings = replace(settings, workspace_limit=workspace_limit)
        await self._store.set_queue(settings)

    async def workers(self, *, alive_ms: int = ALIVE_MS, limit: int = PAGE) -> list[WorkerView]:
        """Return workers by id; alive: heartbeat within `alive_ms` by the store's clock."""
        found = await self._store.list_workers(limit)
        now_ms = await self._store.now_ms()
        return [view_worker(worker, now_ms, alive_ms) for worker in found]

    async def locks(self, *, after: str = "", limit: int = PAGE) -> list[LockView]:
        """Return held locks by name, starting after the name `after`."""
        return [view_lock(each) for each in await self._store.list_locks(after=after, limit=limit)]

    async def release_lock(self, name: str) -> LockView:
        """Release a lock on behalf of its holder, which may still be working when the next begins.

        Raises NotFound if the lock is not held.
        """
        for lock in await self._store.list_locks(name):
            if await self._store.release_lock(name, lock.owner):
                return view_lock(lock)
        raise NotFound(f"lock {name!r} is not held; `duly locks list` shows the held locks")

    async def health(self, *, alive_ms: int = ALIVE_MS, index: IndexHealth | None = None) -> Health:
        """Return the health findings.

        Unless `index` is given, each call checks the next 5,000 schedules for missing index rows.
        """
        workers = await self.workers(alive_ms=alive_ms, limit=MAX_WORKERS)
        inputs = HealthInputs(
            now_ms=await self._store.now_ms(),
            index=index or await self.monitoring.index_health(),
            workers_alive=sum(each.is_alive for each in workers),
            workers=len(workers),
            states=await self._store.count_states(),
            queues=await self._store.list_queues(),
            missing=await self._store.find_missing(),
            unserved=await look_for_unserved(self._store, alive_ms),
            oldest_snapshot_ms=await self._store.oldest_snapshot_ms(),
        )
        return judge(inputs)

    async def clock_ms(self) -> int:
        """Return the store's time in milliseconds since 1970."""
        return await self._store.now_ms()

    async def repair(self) -> ReconcileReport:
        """Rebuild the index from documents and ledger; return the differences."""
        return await self._store.reconcile()

    async def _many(
        self,
        which: JobFilter,
        before: JobId | None,
        limit: int,
        request: Callable[[JobId], Awaitable[Job | JobRefused]],
    ) -> ManyReport:
        _check_filter(which)
        _check("limit", limit, MAX_MANY)
        _check_narrow(which)
        done = refused = 0
        while done + refused < limit:
            size = min(PAGE, limit - done - refused)
            page = await self._store.list_jobs(which, before=before, limit=size)
            for job in page:
                if isinstance(await request(job.id), Job):
                    done += 1
                else:
                    refused += 1
                before = job.id
            if len(page) < size:
                return ManyReport(done, refused, None)
        return ManyReport(done, refused, before)

    async def _settings(self, queue: str) -> QueueSettings:
        check_queue(queue)
        return QueueRules(await self._store.list_queues()).own(queue)

    def _view(self, job: Job) -> JobView:
        return view_job(job, self._redact(job))

    def _redact(self, job: Job) -> Collection[str]:
        action = self._actions.get(job.action)
        return (EVERY,) if action is None else action.redact


def _check_narrow(which: JobFilter) -> None:
    _check_filter(which)
    if all(getattr(which, field.name) is None for field in fields(which)):
        raise InvalidInput("the filter matches every job; name at least a state or a queue")


def _check(what: str, number: object, most: int, remedy: str = "") -> None:
    if type(number) is not int or not 1 <= number <= most:
        raise InvalidInput(f"{what} is {number!r}; allowed: 1 to {most}{remedy}")


def _check_filter(which: object) -> None:
    if not isinstance(which, JobFilter):
        raise InvalidInput(f"which is {shown(which)}; pass a JobFilter")


def _pause_note(note: str | None, by: str | None) -> str | None:
    """Return the note of a pause with the name of its author."""
    for what, text in (("note", note), ("by", by)):
        if text is not None and not isinstance(text, str):
            raise InvalidInput(f"{what} is {shown(text)}; it must be text")
    requested = " ".join(part for part in (note, by and f"({by})") if part) or None
    if requested is not None and len(requested) > MAX_NOTE:
        raise InvalidInput(f"note has {len(requested)} characters; allowed: {MAX_NOTE}")
    return requested
