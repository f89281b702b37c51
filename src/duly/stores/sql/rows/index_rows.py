"""Index rows in their two tables.

`schedule_index` has the columns that a claim searches and writes, `schedule_rules` those that it
only reads; `row_id` joins them, and both are written in one transaction. A writer locks the narrow
row first and then reads the rule: a rule never changes while its row is locked by another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select, and_, delete, false, or_, select, tuple_

from duly.model.index_rows import IndexRow
from duly.model.schedule_writes import ScheduleKey
from duly.stores.sql.bulk import chunks, delete_keys, insert_all, update_all
from duly.stores.sql.db import Db


def under(db: Db, keys: Sequence[ScheduleKey]) -> ColumnElement[bool]:
    """Return the condition for rows with these keys."""
    rules = db.tables.schedule_rules
    if db.dialect.finds_row_values:
        return tuple_(rules.c.flow, rules.c.scope, rules.c.name).in_(
            [(key.flow, key.scope, key.name) for key in keys]
        )
    return or_(
        false(),  # if there are no keys
        *(
            and_(rules.c.flow == key.flow, rules.c.scope == key.scope, rules.c.name == key.name)
            for key in keys
        ),
    )


def whole(db: Db) -> Select[Any]:
    """Return a select of rows with the columns of both tables."""
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    moving = (column for column in index.c if column.name not in rules.c)
    return select(*rules.c, *moving).select_from(index.join(rules))


def locked(db: Db, keys: Sequence[ScheduleKey]) -> Sequence[Row[Any]]:
    """Lock rows by their keys, in the order of their numbers, then read and return them."""
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    if len(keys) == 1 and db.dialect.locks_one_of_a_join:
        wanted = whole(db).with_only_columns(index.c.row_id).where(under(db, keys))
    else:
        # No join: a server that expects one row would compare each number with each key.
        numbers = db.connection.execute(select(rules.c.row_id).where(under(db, keys))).scalars()
        wanted = select(index.c.row_id).where(db.dialect.among(index.c.row_id, numbers.all()))
    of = index if db.dialect.locks_one_of_a_join else None
    lock = wanted.order_by(index.c.row_id).with_for_update(of=of)
    ids = db.connection.execute(db.dialect.held_by(lock, index, "PRIMARY")).scalars().all()
    if not ids:
        return []
    return db.connection.execute(numbered(db, ids)).all()


def numbered(db: Db, numbers: Sequence[int]) -> Select[Any]:
    """Return a select of rows by their numbers, with the columns of both tables."""
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    rule = db.dialect.one_of(rules, rules.c.row_id == index.c.row_id)
    moving = (column for column in index.c if column.name not in rule.c)
    return (
        select(*rule.c, *moving)
        .select_from(index.join(rule, index.c.row_id == rule.c.row_id))
        .where(db.dialect.among(index.c.row_id, numbers))
    )


def unlocked(db: Db, keys: Sequence[ScheduleKey]) -> Sequence[Row[Any]]:
    """Return rows by their keys without locking them."""
    return db.connection.execute(whole(db).where(under(db, keys))).all()


def at_versions(db: Db, numbers: Sequence[int], versions: Sequence[int]) -> list[Row[Any]]:
    """Return rows in this order by number and version, which are the key of the index."""
    if not numbers:
        return []
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    shown = [f"s.{column.name}" for column in rules.c]
    shown += [f"i.{column.name}" for column in index.c if column.name not in rules.c]
    pairs = zip(numbers, versions, strict=True)
    found = db.run(
        f"SELECT {', '.join(shown)} FROM {db.dialect.records(index)} "
        f"{db.dialect.index_row_of_r} JOIN {{p}}schedule_rules s ON s.row_id = i.row_id",
        rows=msgspec.json.encode([{"row_id": n, "version": v} for n, v in pairs]).decode(),
    )
    by_number = {row.row_id: row for row in found}
    return [by_number[number] for number in numbers]


def insert(db: Db, rows: Sequence[IndexRow]) -> None:
    """Insert rows of keys and schedules without one; numbers are assigned in this order."""
    rules = db.tables.schedule_rules
    insert_all(db, rules, [rule_values(row) for row in rows])
    numbers: dict[str, int] = {}
    for chunk in chunks([row.schedule_id for row in rows]):
        statement = select(rules.c.schedule_id, rules.c.row_id).where(
            rules.c.schedule_id.in_(chunk)
        )
        numbers |= {row[0]: row[1] for row in db.connection.execute(statement)}
    values = [{"row_id": numbers[row.schedule_id]} | index_values(row) for row in rows]
    insert_all(db, db.tables.schedule_index, values)


def update(db: Db, rows: Sequence[tuple[int, IndexRow]]) -> None:
    """Update rows by their numbers; clear their errors and not-found counts."""
    moving = [{"row_id": number, "error": None} | index_values(row) for number, row in rows]
    update_all(db, db.tables.schedule_index, "row_id", moving)
    ruling = [{"row_id": number, "not_found": 0} | rule_values(row) for number, row in rows]
    update_all(db, db.tables.schedule_rules, "row_id", ruling)


def remove_halves(db: Db, keys: Sequence[ScheduleKey]) -> None:
    """Remove rules whose index row was deleted manually: they would block new rows."""
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    has_row = select(index.c.row_id).where(index.c.row_id == rules.c.row_id).exists()
    if db.dialect.deletes_lists_by_index:
        db.connection.execute(delete(rules).where(under(db, keys), ~has_row))
        return
    found = db.connection.execute(select(rules.c.row_id).where(under(db, keys), ~has_row))
    remove(db, found.scalars().all())


def remove(db: Db, numbers: Sequence[int]) -> None:
    """Remove rows by their numbers."""
    for chunk in chunks(numbers):
        # No cascade: a caller's own SQLite connection may not enforce foreign keys.
        for table in (db.tables.schedule_index, db.tables.schedule_rules):
            among = db.dialect.among(table.c.row_id, chunk)
            delete_keys(db, table, ("row_id",), [(number,) for number in chunk], among)


def index_values(row: IndexRow) -> dict[str, Any]:
    """Return the columns that a claim searches and writes."""
    return {
        "flow": row.flow,
        "priority": row.priority,
        "trigger_version": row.trigger_version,
        "nominal_ms": row.nominal_ms,
        "run_at_ms": row.run_at_ms,
        "runs_left": row.runs_left,
        "version": row.version,
        "hand_over": row.hand_over,
    }


def rule_values(row: IndexRow) -> dict[str, Any]:
    """Return the columns that a claim only reads."""
    return {
        "schedule_id": row.schedule_id,
        "flow": row.flow,
        "scope": row.scope,
        "name": row.name,
        "trigger_json": row.trigger,  # `trigger` is a keyword of SQL.
        "zone": row.zone,
        "hand_over": row.hand_over,
        "policies": row.policies,
    }


def row_of(found: Row[Any]) -> IndexRow:
    """Return a row from the columns of both tables; a quarantined one has no run time."""
    return IndexRow(
        schedule_id=found.schedule_id,
        flow=found.flow,
        scope=found.scope,
        name=found.name,
        trigger=found.trigger_json,
        nominal_ms=found.nominal_ms,
        run_at_ms=found.nominal_ms if found.run_at_ms is None else found.run_at_ms,
        zone=found.zone,
        hand_over=found.hand_over,
        priority=found.priority,
        policies=found.policies,
        runs_left=found.runs_left,
        trigger_version=found.trigger_version,
        version=found.version,
    )
