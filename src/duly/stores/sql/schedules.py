"""Stations 2 and 3: definitions and their index rows, written in one transaction.

The index row is locked and written before the document: the lock order everywhere. What a write
means is decided by `edits`, which is pure; the verb reads, asks, and writes the answers in bulk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from duly.errors import InvalidInput
from duly.schedules import Definition, Schedule
from duly.scopes import Scope, check_flow
from duly.store import (
    ABSENT,
    Refused,
    ScheduleEvent,
    ScheduleKey,
    ScheduleWrite,
    ScheduleWritten,
)
from duly.stores.checks import SCHEDULES, check_limit
from duly.stores.sql import events
from duly.stores.sql.db import Db
from duly.stores.sql.edits import Edit, Stored, plan_write
from duly.stores.sql.index import row_of, row_values

MAX_WRITES = 10_000
_CHUNK = 500


def get_schedule(db: Db, key: ScheduleKey) -> Schedule | None:
    """Read one schedule."""
    table = db.tables.resources
    statement = select(table).where(
        table.c.collection == SCHEDULES,
        table.c.scope == key.scope,
        table.c.name == document_name(key),
    )
    found = db.connection.execute(statement).first()
    return None if found is None else schedule_of(found)


def list_schedules(
    db: Db, flow: str, scope: str, *, after: str = "", limit: int = 100
) -> list[Schedule]:
    """One page of a scope's schedules by name."""
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


def put_schedules(db: Db, writes: Sequence[ScheduleWrite]) -> list[ScheduleWritten | Refused]:
    """Store definitions with their index rows and events."""
    if len(writes) > MAX_WRITES:
        raise InvalidInput(f"{len(writes)} schedules at once; allowed: {MAX_WRITES}")
    for write in writes:
        check_flow(write.key.flow)
    now_ms = db.now_ms()
    keys = list(dict.fromkeys(write.key for write in writes))
    stored = _read(db, keys)
    held = _held(db, {write.key.scope for write in writes})
    answers: list[ScheduleWritten | Refused] = []
    batch = _Batch(stored)
    for write in writes:
        before = stored.get(write.key)
        edit = plan_write(write, before, held[write.key.scope], now_ms)
        if isinstance(edit, Refused):
            answers.append(edit)
            continue
        held[write.key.scope] += before is None
        stored[write.key] = Stored(edit.schedule, edit.row)
        batch.add(write.key, edit)
        answers.append(ScheduleWritten(edit.schedule, edit.row, created=before is None))
    batch.write(db)
    return answers


def delete_schedule(
    db: Db, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
) -> Schedule | Refused:
    """Remove row and document; the events stay."""
    now_ms = db.now_ms()
    found = _read(db, [key]).get(key)
    if found is None:
        return Refused("absent", ABSENT)
    if expected_version not in (None, found.schedule.version):
        return Refused("stale", found.schedule.version)
    index, table = db.tables.schedule_index, db.tables.resources
    db.connection.execute(delete(index).where(index.c.schedule_id == found.schedule.id))
    db.connection.execute(delete(table).where(table.c.id == found.schedule.id))
    events.append(db, [ScheduleEvent(found.schedule.id, "deleted", now_ms, by)])
    return found.schedule


class _Batch:
    """Edits gathered per table, so that many schedules cost a few statements."""

    def __init__(self, stored: dict[ScheduleKey, Stored]) -> None:
        self._before = dict(stored)
        self._after: dict[ScheduleKey, Edit] = {}
        self._events: list[ScheduleEvent] = []

    def add(self, key: ScheduleKey, edit: Edit) -> None:
        if edit.event is not None:
            self._after[key] = edit
            self._events.append(edit.event)

    def _had_row(self, key: ScheduleKey) -> bool:
        before = self._before.get(key)
        return before is not None and before.row is not None

    def write(self, db: Db) -> None:
        """Rows first, then documents, then events."""
        edits = list(self._after.items())
        index, table = db.tables.schedule_index, db.tables.resources
        kept = {key for key, edit in edits if edit.row is not None and self._had_row(key)}
        # Also clears what may stand under the key of a new row: a quarantined or a foreign one.
        for chunk in _chunks([key for key, _ in edits if key not in kept]):
            db.connection.execute(delete(index).where(row_keys(db, chunk)))
        rows = {key: row_values(edit.row) for key, edit in edits if edit.row is not None}
        _insert(db, index, [row for key, row in rows.items() if key not in kept])
        _update(db, index, "schedule_id", [row for key, row in rows.items() if key in kept])
        _insert(db, table, [document_values(e.schedule) for k, e in edits if k not in self._before])
        _update(
            db, table, "id", [document_values(e.schedule) for k, e in edits if k in self._before]
        )
        events.append(db, self._events)


def _read(db: Db, keys: Sequence[ScheduleKey]) -> dict[ScheduleKey, Stored]:
    """What is stored under the keys; rows locked before documents."""
    index, table = db.tables.schedule_index, db.tables.resources
    rows: dict[str, Any] = {}
    found: dict[ScheduleKey, Stored] = {}
    for chunk in _chunks(keys):
        locked = (
            select(index).where(row_keys(db, chunk)).order_by(index.c.schedule_id).with_for_update()
        )
        rows |= {row.schedule_id: row for row in db.connection.execute(locked)}
        by_name = and_(
            table.c.collection == SCHEDULES,
            tuple_(table.c.scope, table.c.name).in_(
                [(key.scope, document_name(key)) for key in chunk]
            ),
        )
        for document in db.connection.execute(select(table).where(by_name).with_for_update()):
            schedule = schedule_of(document)
            row = rows.get(schedule.id)
            is_live = row is not None and row.error is None
            key = ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)
            found[key] = Stored(schedule, row_of(row) if is_live and row is not None else None)
    return found


def row_keys(db: Db, keys: Sequence[ScheduleKey]) -> ColumnElement[bool]:
    """Index rows that stand under the keys."""
    index = db.tables.schedule_index
    return tuple_(index.c.flow, index.c.scope, index.c.name).in_(
        [(key.flow, key.scope, key.name) for key in keys]
    )


def _held(db: Db, scopes: set[str]) -> Counter[str]:
    """How many schedules each scope has."""
    table = db.tables.resources
    statement = (
        select(table.c.scope, func.count())
        .where(table.c.collection == SCHEDULES, table.c.scope.in_(sorted(scopes)))
        .group_by(table.c.scope)
    )
    return Counter(dict(db.connection.execute(statement).all()))


def _insert(db: Db, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        db.connection.execute(insert(table), rows)


def _update(db: Db, table: Table, key: str, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    # Bound names must differ from column names in an UPDATE.
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in rows[0] if name != key}
    statement = update(table).where(table.c[key] == bindparam(f"new_{key}")).values(values)
    db.connection.execute(
        statement, [{f"new_{name}": value for name, value in row.items()} for row in rows]
    )


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def document_name(key: ScheduleKey) -> str:
    """How a schedule is named among the documents of its scope."""
    return f"{key.flow}/{key.name}"


def document_values(schedule: Schedule) -> dict[str, Any]:
    """A schedule as columns of its document."""
    return {
        "collection": SCHEDULES,
        "scope": str(schedule.scope),
        "name": f"{schedule.flow}/{schedule.name}",
        "id": schedule.id,
        "version": schedule.version,
        "state": schedule.state,
        "error": schedule.error,
        "body": schedule.definition.to_json(),
        "created_at_ms": schedule.created_at_ms,
        "updated_at_ms": schedule.updated_at_ms,
    }


def schedule_of(row: Row[Any]) -> Schedule:
    """The schedule of its document's columns."""
    flow, _, name = row.name.partition("/")
    return Schedule(
        id=row.id,
        flow=flow,
        scope=Scope.parse(row.scope),
        name=name,
        definition=Definition.parse(row.body),
        state=row.state,
        version=row.version,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
        error=row.error,
    )
