"""The bounded monitoring reads of the async port."""

from __future__ import annotations

from duly.model.jobs import JobId, JobState
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import (
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
from duly.stores.sql.reads import index_samples, job_searches, monitoring, planned_fires
from duly.stores.sql.verbs.reads import ReadVerbs


class MonitoringVerbs(ReadVerbs):
    """The monitoring reads on one relational database."""

    async def count_states(self, most: int = 10_000) -> dict[JobState, int]:
        """Count jobs by state, each up to `most`."""
        return await self._run(monitoring.count_states, most)

    async def search_jobs(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 100,
        look: int = 10_000,
    ) -> JobPage:
        """Return one page of jobs by id, newest first, examining about `look` jobs at most."""
        return await self._run(
            job_searches.search_jobs, which, before=before, limit=limit, look=look
        )

    async def count_queues(self, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
        """Return queues by name that have waiting, running or dead jobs or are configured."""
        return await self._run(monitoring.count_queues, most, limit)

    async def count_backlog(self, most: int = 10_000) -> Backlog:
        """Count queued jobs up to `most`; above that, return the database's estimate."""
        return await self._run(monitoring.count_backlog, most)

    async def count_workspaces(
        self, queue: str, most: int = 1_000, limit: int = 100
    ) -> list[WorkspaceCount]:
        """Return the workspaces with queued jobs in a queue."""
        return await self._run(monitoring.count_workspaces, queue, most, limit)

    async def count_ends(self, since_ms: int, most: int = 50_000) -> list[EndCount]:
        """Count the jobs that ended since `since_ms` by minute and state."""
        return await self._run(monitoring.count_ends, since_ms, most)

    async def upcoming(self, until_ms: int, sample: int = 1_000, most: int = 10_000) -> Upcoming:
        """Count rows with a run time before `until_ms` by minute; return up to `sample` of them."""
        return await self._run(index_samples.upcoming, until_ms, sample, most)

    async def next_planned(self, limit: int = 10, look: int = 1_000) -> list[PlannedFire]:
        """Return the first planned run of each schedule, earliest first."""
        return await self._run(planned_fires.next_planned, limit, look)

    async def check_index(self, after: str = "", limit: int = 5_000) -> IndexStretch:
        """Check the next documents after an id for missing index rows."""
        return await self._run(index_samples.check_index, after, limit)

    async def due_summary(self, most: int = 10_000) -> DueSummary:
        """Count due and quarantined rows; return those due the longest."""
        return await self._run(index_samples.due_summary, most)

    async def check_writable(self) -> None:
        """Commit a write that changes nothing."""
        await self._run(monitoring.check_writable)

    async def oldest_snapshot_ms(self) -> int:
        """Return the age of the oldest transaction that holds a snapshot."""
        return await self._run(self._dialect.oldest_snapshot_ms)

    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        """Store an audit entry; return it with its number and time."""
        return await self._run(monitoring.append_audit, entry)

    async def list_audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return one page of audit entries before a number, newest first."""
        return await self._run(monitoring.list_audit, target=target, before=before, limit=limit)
