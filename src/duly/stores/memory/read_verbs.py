"""The memory store's reading verbs: searches, and questions to the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from duly.occurrences import IndexRow
from duly.schedules import Schedule, ScheduleId
from duly.store import ScheduleFilter, ScheduleKey
from duly.stores.memory import searches
from duly.stores.memory.job_verbs import JobVerbs


class ReadVerbs(JobVerbs):
    """What the glass asks of a store."""

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        """One page of schedules of all scopes by flow, name and scope, after a key."""
        with self._transaction() as (tables, _):
            return searches.search(tables, which, after, limit)

    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        """The index rows of schedules, of those that have a next time."""
        with self._transaction() as (tables, _):
            return searches.find_rows(tables, schedule_ids)
