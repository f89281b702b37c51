"""Pages of schedules of all scopes.

The order is by document name (`flow/name`), then by scope. Four indexes have it: one of all
schedules, one by state, one by hand-over, and the key of documents within one scope.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Select, select, tuple_

from duly.model.index_rows import IndexRow
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Schedule, ScheduleId
from duly.rules.checks import SCHEDULES, check_limit
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db
from duly.stores.sql.items.schedules import schedule_of, stored_hand_over
from duly.stores.sql.rows import index_rows
from duly.stores.sql.rows.schedules import document_name

MAX_FLOWS = 1_000
"""Maximum number of flows in which a name is searched."""
_LAST = "\U0010ffff"


def search_schedules(
    db: Db, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
) -> list[Schedule]:
    """Return one page of schedules by flow, name and scope."""
    check_limit(limit)
    place = ("", "") if after is None else (document_name(after), after.scope)
    if which.flow is not None:
        return _page(db, which, _range(which.flow, which.name_prefix), place, limit)
    if not which.name_prefix:
        return _page(db, which, ("", _LAST), place, limit)
    # Document names begin with the flow: search flow by flow, each a range of the index.
    found: list[Schedule] = []
    for _ in range(MAX_FLOWS):
        if (flow := _next_flow(db, which, place)) is None:
            break
        span = _range(flow, which.name_prefix)
        found += _page(db, which, span, place, limit - len(found))
        if len(found) == limit:
            break
        place = (_behind(flow), "")
    return found


def find_rows(db: Db, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
    """Return the index rows of the schedules that have a next time."""
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    found: dict[ScheduleId, IndexRow] = {}
    for chunk in chunks(schedule_ids):
        statement = index_rows.whole(db).where(
            rules.c.schedule_id.in_(chunk), index.c.run_at_ms.is_not(None)
        )
        found |= {
            row.schedule_id: index_rows.row_of(row) for row in db.connection.execute(statement)
        }
    return found


def _range(flow: str, prefix: str) -> tuple[str, str]:
    """Return the half-open range of the document names of a flow with the prefix."""
    return f"{flow}/{prefix}", f"{flow}/{prefix}{_LAST}" if prefix else _behind(flow)


def _behind(flow: str) -> str:
    return f"{flow}0"  # "0" is what follows "/"


def _page(
    db: Db, which: ScheduleFilter, span: tuple[str, str], after: tuple[str, str], limit: int
) -> list[Schedule]:
    table = db.tables.resources
    # Given two lower bounds, PostgreSQL may start at the lower one and scan the index from there.
    # So pass only the higher one.
    if after[0] < span[0]:
        statement = _ordered(db, which, None).where(table.c.name >= span[0])
    else:
        statement = _ordered(db, which, after)
    statement = statement.where(table.c.name < span[1])
    return [schedule_of(row) for row in db.connection.execute(statement.limit(limit))]


def _next_flow(db: Db, which: ScheduleFilter, after: tuple[str, str]) -> str | None:
    """Return the flow of the first schedule after a place, or None."""
    table = db.tables.resources
    statement = _ordered(db, which, after).with_only_columns(table.c.name).limit(1)
    name = db.connection.execute(statement).scalar()
    return None if name is None else str(name).partition("/")[0]


def _ordered(
    db: Db, which: ScheduleFilter, after: tuple[str, str] | None
) -> Select[tuple[object, ...]]:
    """Return an ordered select by a filter without its names, after a place if there is one."""
    table = db.tables.resources
    statement = select(table).where(table.c.state.is_not(None))
    if which.state is not None:
        statement = statement.where(table.c.state == which.state)
    if which.hand_over is not None:
        stored = stored_hand_over(which.hand_over)
        statement = statement.where(table.c.hand_over == stored)  # None becomes IS NULL
    if which.scope is None:
        if after is not None:
            behind: ColumnElement[bool] = tuple_(table.c.name, table.c.scope) > tuple_(*after)
            statement = statement.where(behind)
        return statement.order_by(table.c.name, table.c.scope)
    # Within one scope the key of documents gives the order, without the scope.
    statement = statement.where(table.c.collection == SCHEDULES, table.c.scope == which.scope)
    if after is not None:
        name, scope = after
        later = table.c.name >= name if which.scope > scope else table.c.name > name
        statement = statement.where(later)
    return statement.order_by(table.c.name)
