"""What pages and metrics ask: the whole at a glance, what comes, and who did what.

Every read is bounded by what it may look at; what is told is redacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from duly.errors import DulyError
from duly.forecast import DAY_MINUTES, Forecast, forecast
from duly.glass_store import MINUTE_MS, AuditEntry, Glance, QueueCount, WorkspaceCount
from duly.glass_views import Overview, minutes_of, view_next
from duly.index_watch import IndexWatch
from duly.job_store import QueueSettings
from duly.jobs import JobState
from duly.occurrences import IndexRow, trigger_of
from duly.resources import ScheduleCollection
from duly.store import IndexHealth, Store
from duly.triggers.instants import from_ms

MOST = 10_000
"""Counts stop here."""
MOST_EACH = 200
"""Of a hundred workspaces, each."""
HOUR_MINUTES = 60
NEXT_FIRES = 8
LATENESS = 500
ALIVE_MS = 30_000


class GlassAdmin:
    """The reads of the pages, and the audit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch = IndexWatch(store)

    async def overview(self, most: int = MOST) -> Overview:
        """The whole at a glance."""
        glance = await self._store.glance(most)
        now_ms = glance.now_ms
        since_ms = (now_ms // MINUTE_MS - HOUR_MINUTES + 1) * MINUTE_MS
        states, ends, workers, rows, lateness = await asyncio.gather(
            self._store.count_states(most),
            self._store.count_ends(since_ms),
            self._store.list_workers(),
            self._store.list_rows(limit=NEXT_FIRES),
            self._store.recent_lateness(LATENESS),
        )
        alive = [each for each in workers if now_ms - each.beat_at_ms <= ALIVE_MS]
        return Overview(
            now=from_ms(now_ms),
            most=most,
            states=states,
            due=glance.due,
            oldest_due=from_ms(glance.oldest[0].run_at_ms) if glance.oldest else None,
            quarantined=glance.quarantined,
            is_silent=glance.is_silent,
            minutes=minutes_of(ends, now_ms),
            lateness=lateness,
            workers=len(alive),
            slots=sum(each.slots for each in alive),
            running=sum(each.running for each in alive),
            next_fires=[view_next(row) for row in rows if _is_readable(row)],
            glance=glance,
        )

    async def glance(self) -> Glance:
        """What can be known of the index at once, however large it is."""
        return await self._store.glance(MOST)

    async def index_health(self) -> IndexHealth:
        """What is known of the index: schedules are looked at a few thousand at a time."""
        glance, found = await asyncio.gather(self.glance(), self._watch.look())
        return IndexHealth(
            active=found.active,
            rows=found.active - found.missing,
            missing=found.missing,
            quarantined=glance.quarantined,
            due=glance.due,
            oldest_due_ms=glance.oldest[0].run_at_ms if glance.oldest else None,
            is_whole=found.is_whole,
        )

    async def forecast(self, minutes: int = DAY_MINUTES) -> Forecast:
        """Fires per minute to come; an estimate where many schedules come."""
        now_ms = await self._store.now_ms()
        upcoming = await self._store.upcoming(now_ms + minutes * MINUTE_MS)
        # Thousands of trigger steps: not on the loop that serves everybody.
        return await asyncio.to_thread(forecast, upcoming, minutes)

    async def states(self, most: int = MOST) -> Mapping[JobState, int]:
        """Jobs by state, each counted up to `most`."""
        return await self._store.count_states(most)

    async def queues(self, limit: int = 100) -> list[tuple[QueueSettings, QueueCount]]:
        """Queues with what is decided about them and what is in them."""
        counts = await self._store.count_queues(MOST, limit)
        decided = {each.queue: each for each in await self._store.list_queues()}
        return [(decided.get(each.queue, QueueSettings(each.queue)), each) for each in counts]

    async def workspaces(self, queue: str, limit: int = 100) -> list[WorkspaceCount]:
        """Workspaces with queued jobs in a queue."""
        return await self._store.count_workspaces(queue, MOST_EACH, limit)

    def collection(self, flow: str, actions: frozenset[str] | None = None) -> ScheduleCollection:
        """The schedules of a flow, to be made and changed under the limits of their owners."""
        return ScheduleCollection(self._store, flow, actions=actions)

    async def record(self, entry: AuditEntry) -> AuditEntry:
        """Keep who did what."""
        return await self._store.append_audit(entry)

    async def audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[AuditEntry]:
        """Who did what, newest first."""
        return await self._store.list_audit(target=target, before=before, limit=limit)

    async def now(self) -> datetime:
        """The clock that decides."""
        return from_ms(await self._store.now_ms())


def _is_readable(row: IndexRow) -> bool:
    """Whether this release can say when it fires; a newer one may have written it."""
    try:
        trigger_of(row.trigger)
    except DulyError:
        return False
    return True
