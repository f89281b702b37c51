"""Facts about schedules: appended, never changed; and the states they leave on documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import bindparam, insert, select, update

from duly.occurrences import Advance
from duly.rules.checks import check_limit
from duly.schedules import ScheduleId
from duly.store import ScheduleEvent
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples

WITH_RULE = '%"trigger":%'
"""What the detail of an event is like that ended a rule; in a text its quotes would be escaped."""


def append(db: Db, events: Sequence[ScheduleEvent]) -> None:
    """Write facts in their order."""
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
    """The newest facts about a schedule, oldest first."""
    check_limit(limit)
    table = db.tables.schedule_events
    statement = (
        select(table)
        .where(table.c.schedule_id == schedule_id)
        .order_by(table.c.seq.desc())
        .limit(limit)
    )
    found = db.connection.execute(statement).all()
    return [
        ScheduleEvent(schedule_id, row.kind, row.at_ms, row.actor, json.loads(row.detail))
        for row in reversed(found)
    ]


def retimed(db: Db, ids: Sequence[str]) -> dict[str, int]:
    """When the timing of schedules was last decided.

    An edit of one that had ended counts whatever it says: one of them gave it another beginning.
    """
    found: dict[str, int] = {}
    for chunk in chunks(ids):
        rows = db.run(
            "SELECT e.schedule_id, MAX(e.at_ms) FROM {p}schedule_events e "
            "WHERE e.schedule_id IN :ids AND (e.kind IN ('created', 'resumed') "
            "OR e.detail LIKE :rule OR (e.kind = 'changed' AND e.seq > ("
            "SELECT MAX(n.seq) FROM {p}schedule_events n WHERE n.schedule_id = e.schedule_id "
            "AND n.kind IN ('finished', 'quarantined')))) GROUP BY e.schedule_id",
            ids=list(chunk),
            rule=WITH_RULE,
        )
        found |= {row[0]: row[1] for row in tuples(rows)}
    return found


def end_schedules(
    db: Db, moves: Sequence[Advance], state: Literal["finished", "quarantined"], now_ms: int
) -> None:
    """Store on the documents that their schedules have ended, and say so.

    Rows that belong to no document (an application that keeps its definitions elsewhere) have
    nothing to store it on and leave no event.
    """
    table = db.tables.resources
    ids = [move.schedule_id for move in moves]
    known: set[Any] = set()
    for start in range(0, len(ids), 500):
        found = select(table.c.id).where(table.c.id.in_(ids[start : start + 500]))
        known.update(db.connection.execute(found).scalars())
    ended = [move for move in moves if move.schedule_id in known]
    if not ended:
        return
    statement = (
        update(table)
        .where(table.c.id == bindparam("ended_id"))
        .values(
            state=state,
            error=bindparam("ended_error"),
            finished_at_ms=now_ms if state == "finished" else None,
        )
    )
    db.connection.execute(
        statement, [{"ended_id": move.schedule_id, "ended_error": move.error} for move in ended]
    )
    append(
        db,
        [
            ScheduleEvent(
                move.schedule_id,
                state,
                now_ms,
                "system",
                {} if move.error is None else {"error": move.error},
            )
            for move in ended
        ],
    )
