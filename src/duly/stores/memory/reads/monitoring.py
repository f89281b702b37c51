"""Monitoring reads of the memory store, computed from all stored items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from duly.engine.kinds import StoredJob
from duly.model.jobs import ALL_QUEUES, Job, JobId, JobState
from duly.model.schedules import ScheduleId, is_indexed
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import (
    ENDS,
    MAX_COUNT,
    MAX_SAMPLE,
    MINUTE_MS,
    OLDEST,
    AuditEntry,
    Backlog,
    DueSummary,
    EndCount,
    IndexStretch,
    JobPage,
    PlannedFire,
    QueueCount,
    Upcoming,
    WorkspaceCount,
)
from duly.rules.checks import check_audit, check_limit
from duly.rules.line_counts import AllQueues, queue_count
from duly.stores.memory.reads import jobs as job_rows
from duly.stores.memory.reads.index import due_by_hand_over, in_order
from duly.stores.memory.tables import Tables
from duly.stores.memory.verbs.reads import ReadVerbs

_LATER = (JobState.SCHEDULED, JobState.RETRYING)


class MonitoringVerbs(ReadVerbs):
    """Every verb of MonitoringReads."""

    async def count_states(self, most: int = 10_000) -> dict[JobState, int]:
        """Count jobs by state, each up to `most`."""
        check_limit(most, MAX_COUNT)
        with self._transaction() as (tables, _):
            counts = Counter(stored.job.state for stored in tables.jobs.values())
        return {state: min(count, most) for state, count in sorted(counts.items())}

    async def search_jobs(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 100,
        look: int = 10_000,
    ) -> JobPage:
        """Return one page of jobs by id, newest first; every job is read, whatever `look` is."""
        check_limit(look, MAX_COUNT)
        with self._transaction() as (tables, _):
            found = job_rows.page(tables, which, before, limit)
            more = job_rows.page(tables, which, found[-1].id, 1) if found else []
        return JobPage(found, found[-1].id if more else None)

    async def count_queues(self, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
        """Count the jobs of queues by name; include configured queues without jobs."""
        check_limit(most, MAX_COUNT)
        check_limit(limit)
        with self._transaction() as (tables, _):
            return _queues(tables, most)[:limit]

    async def count_backlog(self, most: int = 10_000) -> Backlog:
        """Count all queued jobs, without a limit."""
        check_limit(most, MAX_COUNT)
        with self._transaction() as (tables, _):
            return Backlog(len(_in_line(tables)), is_estimate=False)

    async def count_workspaces(
        self, queue: str, most: int = 1_000, limit: int = 100
    ) -> list[WorkspaceCount]:
        """Return the workspaces with queued jobs in a queue, by name, each counted up to `most`."""
        check_limit(most, MAX_COUNT)
        check_limit(limit)
        with self._transaction() as (tables, _):
            line = [each for each in _in_line(tables) if each.queue == queue]
        counts = Counter(job.workspace for job in line)
        return [
            WorkspaceCount(
                name, min(count, most), _first(job for job in line if name == job.workspace)
            )
            for name, count in sorted(counts.items())
        ][:limit]

    async def count_ends(self, since_ms: int, most: int = 50_000) -> list[EndCount]:
        """Count jobs ended since an instant, by minute and state; the newest `most` per state."""
        check_limit(most, MAX_COUNT)
        with self._transaction() as (tables, _):
            jobs = [stored.job for stored in tables.jobs.values()]
        counts: Counter[tuple[int, JobState]] = Counter()
        for state in ENDS:
            ended = (job.finished_at_ms for job in jobs if job.state is state)
            times = sorted((ms for ms in ended if ms is not None and ms >= since_ms), reverse=True)
            counts.update((ms // MINUTE_MS * MINUTE_MS, state) for ms in times[:most])
        return [EndCount(*key, count) for key, count in sorted(counts.items())]

    async def upcoming(self, until_ms: int, sample: int = 1_000, most: int = 10_000) -> Upcoming:
        """Count rows with a run time before `until_ms` by minute; return up to `sample` of them."""
        check_limit(sample, MAX_SAMPLE)
        check_limit(most, MAX_COUNT)
        with self._transaction() as (tables, now_ms):
            rows = [row for row in in_order(tables) if row.run_at_ms < until_ms]
        minutes = Counter(row.run_at_ms // MINUTE_MS * MINUTE_MS for row in rows)
        some = rows[:: -(-len(rows) // sample) or 1]
        return Upcoming(now_ms, sorted(minutes.items()), some, len(rows) > most)

    async def check_index(self, after: str = "", limit: int = 5_000) -> IndexStretch:
        """Check the next `limit` schedules after an id for missing index rows."""
        check_limit(limit, MAX_COUNT)
        with self._transaction() as (tables, _):
            later = sorted(
                (each.id, each.state, each.definition.hand_over)
                for each in tables.schedules()
                if each.id > after
            )
            indexed = {row.schedule_id for row in in_order(tables)}
        seen = later[:limit]
        active = [name for name, state, by in seen if state == "active" and by != "external"]
        external = sum(state == "active" and by == "external" for _, state, by in seen)
        missing = len(set(active) - indexed)
        last_id = seen[-1][0] if len(seen) == limit else None
        return IndexStretch(len(active), missing, last_id, external)

    async def next_planned(self, limit: int = 10, look: int = 1_000) -> list[PlannedFire]:
        """Return the first planned run of each schedule, earliest first."""
        check_limit(limit)
        check_limit(look, MAX_COUNT)
        with self._transaction() as (tables, _):
            jobs = [stored.job for stored in tables.jobs.values()]
        first: dict[ScheduleId, int] = {}
        for job in sorted(jobs, key=lambda job: job.run_at_ms):
            if job.state is JobState.SCHEDULED and job.schedule_id is not None:
                first.setdefault(ScheduleId(job.schedule_id), job.run_at_ms)
        found = sorted(first.items(), key=lambda each: (each[1], each[0]))
        return [PlannedFire(*each) for each in found[:limit]]

    async def due_summary(self, most: int = 10_000) -> DueSummary:
        """Count due and quarantined rows up to `most`; return the ones due for longest."""
        check_limit(most, MAX_COUNT)
        with self._transaction() as (tables, now_ms):
            rows = in_order(tables)
            has_active = any(
                each.state == "active" and is_indexed(each.definition)
                for each in tables.schedules()
            )
            quarantined = len(tables.errors)
        due = [row for row in rows if row.run_at_ms <= now_ms][:most]
        waiting = due_by_hand_over(due)
        return DueSummary(
            now_ms,
            bool(rows) or has_active,
            bool(rows),
            sum(each.rows for each in waiting.values()),
            min(quarantined, most),
            [row for row in due[:OLDEST] if row.hand_over in waiting],
            waiting,
            is_due_capped=len(due) >= most,
            is_quarantined_capped=quarantined >= most,
        )

    async def check_writable(self) -> None:
        """Do nothing: memory is always writable."""

    async def oldest_snapshot_ms(self) -> int:
        """Return 0: deleted items are removed at once."""
        return 0

    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        """Store an audit entry; return it with its number and time."""
        check_audit(entry)
        with self._transaction() as (tables, now_ms):
            last = tables.audit[-1].seq if tables.audit else 0
            kept = replace(entry, seq=last + 1, at_ms=now_ms)
            tables.audit.append(kept)
            return kept

    async def list_audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return one page of audit entries, newest first, before a number; of one target or all."""
        check_limit(limit)
        with self._transaction() as (tables, _):
            found = [
                entry
                for entry in reversed(tables.audit)
                if target in (None, entry.target) and (before is None or entry.seq < before)
            ]
        return found[:limit]


def _queues(tables: Tables, most: int) -> list[QueueCount]:
    jobs = [stored.job for stored in tables.jobs.values()]
    line = _in_line(tables)
    running = _newest(jobs, JobState.PROCESSING, most)
    died = _newest(jobs, JobState.DEAD, most)
    later = [job for job in jobs if job.state in _LATER]
    shown = [*line, *later, *running, *died]
    names = {job.queue for job in shown} | (tables.queues.keys() - {ALL_QUEUES})
    waiting = sum(job.in_line for job in jobs)
    together = AllQueues(waiting, len(running), len(died))

    def count(queue: str, among: Iterable[Job]) -> int:
        return min(sum(job.queue == queue for job in among), most)

    return [
        queue_count(
            QueueCount(
                name,
                count(name, line),
                count(name, later),
                count(name, running),
                count(name, died),
                _first(job for job in line if job.queue == name),
            ),
            together,
            most,
        )
        for name in sorted(names)
    ]


def _newest(jobs: Iterable[Job], state: JobState, most: int) -> list[Job]:
    """Return the `most` jobs of a state with the latest lease end or end time."""

    def at_ms(job: Job) -> int:
        return (job.lease_until_ms if state is JobState.PROCESSING else job.finished_at_ms) or 0

    return sorted((job for job in jobs if job.state is state), key=at_ms, reverse=True)[:most]


def _in_line(tables: Tables) -> list[Job]:
    """Return queued jobs in line order."""
    waiting = [each for each in tables.jobs.values() if each.job.state is JobState.QUEUED]

    def place(each: StoredJob) -> tuple[int, str]:
        return each.place, each.job.id

    return [each.job for each in sorted(waiting, key=place)]


def _first(jobs: Iterable[Job]) -> int | None:
    return next((job.run_at_ms for job in jobs), None)
