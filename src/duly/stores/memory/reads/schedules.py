"""Reads of schedules and their events in the memory store."""

from __future__ import annotations

from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import Schedule, ScheduleId
from duly.rules.checks import SCHEDULES, check_limit
from duly.stores.memory.reads.documents import page
from duly.stores.memory.tables import Tables, schedule_of


def list_page(tables: Tables, flow: str, scope: str, after: str, limit: int) -> list[Schedule]:
    """Return one page of a scope's schedules by name, after a name."""
    documents = page(tables, SCHEDULES, scope, f"{flow}/", f"{flow}/{after}", limit)
    return [schedule_of(tables.documents[SCHEDULES, scope, each.name]) for each in documents]


def events(tables: Tables, schedule_id: ScheduleId, limit: int) -> list[ScheduleEvent]:
    """Return the newest `limit` events of a schedule, oldest first."""
    check_limit(limit)
    return [event for event in tables.events if event.schedule_id == schedule_id][-limit:]
