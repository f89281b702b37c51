"""The verbs of the glass on the async port."""

from __future__ import annotations

from duly.glass_store import AuditEntry, EndCount, Glance, QueueCount, Upcoming, WorkspaceCount
from duly.jobs import JobState
from duly.stores.sql import glass
from duly.stores.sql.read_verbs import ReadVerbs


class GlassVerbs(ReadVerbs):
    """What pages read, on one relational database."""

    async def count_states(self, most: int = 10_000) -> dict[JobState, int]:
        """Jobs by state, each counted up to `most`."""
        return await self._run(glass.count_states, most)

    async def count_queues(self, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
        """Queues in which something waits, runs or died, or that somebody spoke about."""
        return await self._run(glass.count_queues, most, limit)

    async def count_workspaces(
        self, queue: str, most: int = 1_000, limit: int = 100
    ) -> list[WorkspaceCount]:
        """Workspaces with queued jobs in a queue."""
        return await self._run(glass.count_workspaces, queue, most, limit)

    async def count_ends(self, since_ms: int, most: int = 50_000) -> list[EndCount]:
        """Jobs ended since then by minute and state."""
        return await self._run(glass.count_ends, since_ms, most)

    async def upcoming(self, until_ms: int, sample: int = 1_000) -> Upcoming:
        """Rows with a run time before `until_ms`, by minute; and about `sample` of them."""
        return await self._run(glass.upcoming, until_ms, sample)

    async def glance(self, most: int = 10_000) -> Glance:
        """Due and quarantined rows, and those due for longest."""
        return await self._run(glass.glance, most)

    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        """Keep who did what."""
        return await self._run(glass.append_audit, entry)

    async def list_audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """One page of entries, newest first, before a number."""
        return await self._run(glass.list_audit, target=target, before=before, limit=limit)
