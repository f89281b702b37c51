"""Reads of schedules for pages."""

from __future__ import annotations

from sqlalchemy import select

from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import Schedule
from duly.rules.checks import SCHEDULES, check_limit
from duly.stores.sql.db import Db
from duly.stores.sql.items.schedules import schedule_of


def list_schedules(
    db: Db, flow: str, scope: str, *, after: str = "", limit: int = 100
) -> list[Schedule]:
    """Return one page of a scope's schedules by name."""
    check_limit(limit)
    table = db.tables.resources
    statement = (
        select(table)
        .where(
            table.c.collection == SCHEDULES,
            table.c.scope == scope,
            table.c.name > f"{flow}/{after}",
            table.c.name < f"{flow}0",  # "0" is what follows "/"
        )
        .order_by(table.c.name)
        .limit(limit)
    )
    return [schedule_of(row) for row in db.connection.execute(statement)]


def document_name(key: ScheduleKey) -> str:
    """Return the name of a schedule's document in its scope."""
    return f"{key.flow}/{key.name}"
