"""The events of schedules: append-only."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import insert, select

from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import ScheduleId
from duly.rules.checks import check_limit
from duly.stores.sql.db import Db
from duly.stores.sql.logs import schedule_event_of


def append(db: Db, events: Sequence[ScheduleEvent]) -> None:
    """Write events in their order."""
    if events:
        db.connection.execute(
            insert(db.tables.schedule_events),
            [
                {
                    "schedule_id": event.schedule_id,
                    "kind": event.kind,
                    "at_ms": event.at_ms,
                    "actor": event.by,
                    "detail": json.dumps(event.detail, separators=(",", ":"), sort_keys=True),
                }
                for event in events
            ],
        )


def schedule_events(db: Db, schedule_id: ScheduleId, limit: int = 100) -> list[ScheduleEvent]:
    """Return the newest events of a schedule, oldest first; check the limit."""
    check_limit(limit)
    return newest_events(db, schedule_id, limit)


def newest_events(db: Db, schedule_id: ScheduleId, limit: int) -> list[ScheduleEvent]:
    """Return the newest events of a schedule, oldest first, for any limit."""
    table = db.tables.schedule_events
    statement = (
        select(table)
        .where(table.c.schedule_id == schedule_id)
        .order_by(table.c.seq.desc())
        .limit(limit)
    )
    found = db.connection.execute(statement).all()
    return [schedule_event_of(row) for row in reversed(found)]
