"""The reading verbs of the async port: searches, and questions to the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from duly.occurrences import IndexRow
from duly.schedules import Schedule, ScheduleId
from duly.store import ScheduleFilter, ScheduleKey
from duly.stores.sql import searches
from duly.stores.sql.job_verbs import JobVerbs


class ReadVerbs(JobVerbs):
    """What the glass asks of one relational database."""

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        """One page of schedules of all scopes."""
        return await self._run(searches.search_schedules, which, after=after, limit=limit)

    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        """The index rows of schedules."""
        return await self._run(searches.find_rows, schedule_ids)
