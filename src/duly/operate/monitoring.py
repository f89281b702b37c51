"""Reads for dashboard and metrics: summary, forecast, queues and audit.

Every read is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from duly.errors import DulyError
from duly.flows.collections import ScheduleCollection
from duly.model.index import IndexHealth
from duly.model.index_rows import IndexRow, trigger_of
from duly.model.jobs import JobState
from duly.model.ledger_counts import MissingSchedule, OccurrenceCounts
from duly.model.queues import QueueSettings
from duly.model.summaries import MINUTE_MS, AuditEntry, DueSummary, QueueCount, WorkspaceCount
from duly.operate.forecast import DAY_MINUTES, Forecast, forecast
from duly.operate.index_watch import IndexWatch
from duly.operate.summary_views import NextFire, Overview, minutes_of, view_next, view_planned
from duly.operate.unserved import ALIVE_MS, MAX_WORKERS, Unserved, look_for_unserved
from duly.rules.queue_settings import QueueRules
from duly.stores.port import Store
from duly.triggers.instants import from_ms

MAX_COUNTED_JOBS = 10_000
"""Counts stop here."""
MOST_EACH = 200
"""Counts of a single workspace stop here."""
HOUR_MINUTES = 60
NEXT_FIRES = 8
LATENESS = 500


class MonitoringAdmin:
    """Reads for the dashboard and the metrics, and the audit log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch = IndexWatch(store)

    async def overview(self, most: int = MAX_COUNTED_JOBS) -> Overview:
        """Return the summary of the whole system; counts stop at `most`."""
        summary = await self._store.due_summary(most)
        now_ms = summary.now_ms
        since_ms = (now_ms // MINUTE_MS - HOUR_MINUTES + 1) * MINUTE_MS
        states, ends, workers, next_fires, lateness = await asyncio.gather(
            self._store.count_states(most),
            self._store.count_ends(since_ms),
            self._store.list_workers(MAX_WORKERS),
            self._next_fires(),
            self._store.recent_lateness(LATENESS),
        )
        unserved, backlog = await asyncio.gather(self.unserved(), self._store.count_backlog(most))
        alive = [each for each in workers if now_ms - each.beat_at_ms <= ALIVE_MS]
        return Overview(
            now=from_ms(now_ms),
            most=most,
            states=states,
            due=summary.due,
            oldest_due=from_ms(summary.oldest[0].run_at_ms) if summary.oldest else None,
            quarantined=summary.quarantined,
            is_silent=summary.is_silent,
            minutes=minutes_of(ends, now_ms),
            lateness=lateness,
            workers=len(alive),
            slots=sum(each.slots for each in alive),
            running=sum(each.running for each in alive),
            next_fires=next_fires,
            due_summary=summary,
            unserved=unserved,
            backlog=backlog,
        )

    async def occurrences(self) -> OccurrenceCounts:
        """Count the times in the whole ledger by flow and outcome."""
        return await self._store.count_occurrences()

    async def missing(self) -> list[MissingSchedule]:
        """Return schedules that keep missing or skipping their times."""
        return await self._store.find_missing()

    async def unserved(self) -> list[Unserved]:
        """Return waiting jobs that no live worker would claim, longest waiting first."""
        return await look_for_unserved(self._store)

    async def _next_fires(self) -> list[NextFire]:
        """Return the schedules that fire next, each once, from planned jobs and the index."""
        rows, planned = await asyncio.gather(
            self._store.list_rows(limit=NEXT_FIRES), self._store.next_planned(NEXT_FIRES)
        )
        fires = {row.schedule_id: view_next(row) for row in rows if _is_readable(row)}
        for schedule_id, run_at_ms in planned:
            found = await self._store.find_schedule(schedule_id)
            if found is not None:
                earlier = view_planned(found, run_at_ms)
                fires[schedule_id] = min(earlier, fires.get(schedule_id, earlier), key=_run_at)
        return sorted(fires.values(), key=_run_at)[:NEXT_FIRES]

    async def due_summary(self) -> DueSummary:
        """Return a bounded summary of the index."""
        return await self._store.due_summary(MAX_COUNTED_JOBS)

    async def check_writable(self) -> None:
        """Raise BackendUnavailable if the database accepts no writes."""
        await self._store.check_writable()

    async def oldest_snapshot_ms(self) -> int:
        """Return the age of the oldest transaction that retains deleted rows; 0: none."""
        return await self._store.oldest_snapshot_ms()

    async def index_health(self) -> IndexHealth:
        """Return the known state of the index; each call checks a few thousand schedules."""
        summary, found = await asyncio.gather(self.due_summary(), self._watch.look())
        planned, posts = summary.waiting.get("jobs"), summary.waiting.get("http")
        return IndexHealth(
            active=found.active,
            rows=found.active - found.missing,
            missing=found.missing,
            quarantined=summary.quarantined,
            due=planned.rows if planned else 0,
            oldest_due_ms=planned.oldest_ms if planned else None,
            posts_due=posts.rows if posts else 0,
            oldest_post_ms=posts.oldest_ms if posts else None,
            is_whole=found.is_whole,
            external=found.external,
            is_due_capped=summary.is_due_capped,
            is_quarantined_capped=summary.is_quarantined_capped,
        )

    async def whole_index_health(self) -> IndexHealth:
        """Check every schedule, a few thousand per transaction."""
        while not (found := await self.index_health()).is_whole:
            pass
        return found

    async def forecast(self, minutes: int = DAY_MINUTES) -> Forecast:
        """Return the expected fires per minute; an estimate if there are many schedules."""
        now_ms = await self._store.now_ms()
        upcoming = await self._store.upcoming(now_ms + minutes * MINUTE_MS)
        # Thousands of trigger steps would block the event loop.
        return await asyncio.to_thread(forecast, upcoming, minutes)

    async def states(self, most: int = MAX_COUNTED_JOBS) -> Mapping[JobState, int]:
        """Return jobs by state, each counted up to `most`."""
        return await self._store.count_states(most)

    async def queues(self, limit: int = 100) -> list[tuple[QueueSettings, QueueCount]]:
        """Return queues with their settings and counts."""
        counts = await self._store.count_queues(MAX_COUNTED_JOBS, limit)
        rules = QueueRules(await self._store.list_queues())
        return [(rules.of(each.queue), each) for each in counts]

    async def workspaces(self, queue: str, limit: int = 100) -> list[WorkspaceCount]:
        """Return the workspaces with queued jobs in a queue."""
        return await self._store.count_workspaces(queue, MOST_EACH, limit)

    def collection(self, flow: str, actions: frozenset[str] | None = None) -> ScheduleCollection:
        """Return the schedules of a flow, for creating and changing under their owners' limits."""
        return ScheduleCollection(self._store, flow, actions=actions)

    async def record(self, entry: AuditEntry) -> AuditEntry:
        """Append an audit entry."""
        return await self._store.append_audit(entry)

    async def audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[AuditEntry]:
        """Return audit entries, newest first."""
        return await self._store.list_audit(target=target, before=before, limit=limit)

    async def now(self) -> datetime:
        """Return the store's time."""
        return from_ms(await self._store.now_ms())


def _run_at(fire: NextFire) -> datetime:
    return fire.run_at


def _is_readable(row: IndexRow) -> bool:
    """Return whether this release can read the row's trigger; a newer one may have written it."""
    try:
        trigger_of(row.trigger)
    except DulyError:
        return False
    return True
