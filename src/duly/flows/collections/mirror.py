"""Schedules whose rows are in an index of the application's own.

After a schedule was written to the store, its row is written to the index or removed from it. A
failure between the two writes is repaired by `reindex`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from duly.model.index import MAX_PAGE
from duly.model.index_rows import IndexRow, index_row
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Definition, Schedule, first_after_ms
from duly.stores.port import ScheduleIndex, Store


@dataclass(frozen=True, slots=True)
class Mirror:
    """An index that follows the schedules of a store."""

    store: Store
    index: ScheduleIndex

    @staticmethod
    def stored(definition: Definition) -> Definition:
        """Return the definition as the store keeps it: without a row of the store's own index."""
        return msgspec.structs.replace(definition, hand_over="external")

    async def follow(self, before: Schedule | None, schedule: Schedule) -> None:
        """Write the row of a schedule that was created or changed.

        A row whose timing is unchanged is not written, since it may be due.
        """
        if before is not None and _timing(before) == _timing(schedule):
            return
        await self._put(schedule, first_after_ms(schedule.definition, schedule.updated_at_ms))

    async def remove(self, key: ScheduleKey) -> None:
        """Remove the row of a schedule that was deleted."""
        await self.index.remove(key)

    async def reindex(self, flow: str) -> int:
        """Write the rows of all schedules of a flow; return how many there are.

        The next time is the first after the last one in the ledger, else after the last change. A
        row with a later time keeps it.
        """
        count, after = 0, None
        while True:
            which = ScheduleFilter(flow=flow)
            page = await self.store.search_schedules(which, after=after, limit=MAX_PAGE)
            for schedule in page:
                await self._put(schedule, await self._last_ms(schedule))
            count += len(page)
            if len(page) < MAX_PAGE:
                return count
            after = _key(page[-1])

    async def _last_ms(self, schedule: Schedule) -> int:
        began_ms = first_after_ms(schedule.definition, schedule.updated_at_ms)
        newest = await self.store.list_occurrences(schedule.id, limit=1)
        return max([began_ms, *(each.until_ms for each in newest)])

    async def _put(self, schedule: Schedule, after_ms: int) -> None:
        row = _row(schedule, after_ms)
        if row is None:
            await self.index.remove(_key(schedule))
        else:
            await self.index.upsert(row)


def _row(schedule: Schedule, after_ms: int) -> IndexRow | None:
    if not schedule.definition.enabled:
        return None
    # A tick posts it; the store's own definition is `external`, so the store has no row of it.
    posted = msgspec.structs.replace(schedule.definition, hand_over="http")
    return index_row(replace(schedule, state="active", definition=posted), after_ms)


def _timing(schedule: Schedule) -> tuple[object, ...]:
    definition = schedule.definition
    return schedule.id, definition.trigger, definition.enabled, definition.max_runs


def _key(schedule: Schedule) -> ScheduleKey:
    return ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)
