"""Station 3: the schedule index, and claims on it.

A claim is one transaction: select due rows past other claimers' locks, advance them in pure code,
write the advance as a batch. A process that dies in between leaves the rows due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Row, and_, delete, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from duly.errors import Conflict
from duly.occurrences import (
    TRIGGER_VERSION,
    Advance,
    Claimed,
    Due,
    IndexRow,
    advance,
    claimed_from,
)
from duly.store import CLAIM_LIMIT, Quarantined, ScheduleKey
from duly.stores.checks import check_claim, check_limit
from duly.stores.sql import events
from duly.stores.sql.db import Db

_CHUNK = 500


def upsert(db: Db, row: IndexRow) -> None:
    """Store the row of its key; a slow writer never sets the hand back."""
    table = db.tables.schedule_index
    here = _is(db, ScheduleKey(row.flow, row.scope, row.name))
    found = db.connection.execute(select(table).where(here).with_for_update()).first()
    values = row_values(row)
    if found is None or found.schedule_id != row.schedule_id:
        _refuse_second_row(db, row, here)
    if found is None:
        db.connection.execute(insert(table).values(values | {"version": 1, "error": None}))
        return
    is_same = (found.schedule_id, found.trigger_json) == (row.schedule_id, row.trigger)
    if is_same and found.error is None and found.nominal_ms > row.nominal_ms:
        values |= {"nominal_ms": found.nominal_ms, "run_at_ms": found.run_at_ms}
    values |= {"version": found.version + 1, "error": None}
    db.connection.execute(update(table).where(here).values(values))


def _refuse_second_row(db: Db, row: IndexRow, here: ColumnElement[bool]) -> None:
    # Another writer may have stored this very row meanwhile; the insert meets it and tries again.
    table = db.tables.schedule_index
    statement = select(table.c.flow, table.c.scope, table.c.name).where(
        table.c.schedule_id == row.schedule_id, ~here
    )
    other = db.connection.execute(statement).first()
    if other is not None:
        raise Conflict(f"schedule id {row.schedule_id!r} belongs to the row {'/'.join(other)}")


def remove(db: Db, key: ScheduleKey) -> None:
    """Remove the row of a key; absent is fine."""
    db.connection.execute(delete(db.tables.schedule_index).where(_is(db, key)))


def claim_due(
    db: Db,
    now_ms: int | None = None,
    limit: int = CLAIM_LIMIT,
    flow: str | None = None,
    claim_id: str | None = None,
) -> list[Claimed]:
    """Take rows whose run time has come, oldest first, and advance them."""
    check_claim(now_ms, limit, claim_id)
    if claim_id is not None:
        db.dialect.guard_claim(db.connection, db.tables, claim_id)
        earlier = claimed_before(db, claim_id)
        if earlier:
            return earlier
    while True:
        rows, now = _due(db, now_ms, limit, flow)
        if not rows:
            return []
        moves = advance(rows, now)
        _write(db, moves, now)
        pairs = zip(rows, moves, strict=True)
        claimed = [claimed_from(row, move) for row, move in pairs if move.error is None]
        if claim_id is not None:
            claimed = _record(db, claimed, claim_id, now)
        # Rows that could not be evaluated are out of the due range now: look behind them.
        if claimed:
            return claimed


def _due(db: Db, now_ms: int | None, limit: int, flow: str | None) -> tuple[list[Due], int]:
    """Due rows, locked, in claim order; and the time that decided."""
    table = db.tables.schedule_index
    clock = db.clock(now_ms)
    statement = (
        select(*(table.c[_column(name)] for name in Due._fields), clock.label("now_ms"))
        .where(table.c.run_at_ms <= clock, table.c.trigger_version <= TRIGGER_VERSION)
        .order_by(table.c.run_at_ms, table.c.priority.desc(), table.c.schedule_id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    if flow is not None:
        statement = statement.where(table.c.flow == flow)
    found = db.connection.execute(statement).all()
    if not found:
        return [], 0
    return [Due(*row[:-1]) for row in found], int(found[0].now_ms)


def _write(db: Db, moves: Sequence[Advance], now_ms: int) -> None:
    """Advance, finish or quarantine; the two rare cases cost statements only when they happen."""
    going = [move for move in moves if move.run_at_ms is not None]
    ended = [move for move in moves if move.run_at_ms is None and move.error is None]
    broken = [move for move in moves if move.error is not None]
    if going:
        db.dialect.advance_rows(db.connection, db.tables, going)
    if ended:
        table = db.tables.schedule_index
        for chunk in chunks([move.schedule_id for move in ended]):
            db.connection.execute(delete(table).where(table.c.schedule_id.in_(chunk)))
        events.end_schedules(db, ended, "finished", now_ms)
    if broken:
        quarantine(db, broken)
        events.end_schedules(db, broken, "quarantined", now_ms)


def quarantine(db: Db, moves: Sequence[Advance]) -> None:
    """Take rows out of the due range and keep why."""
    table = db.tables.schedule_index
    for move in moves:
        db.connection.execute(
            update(table)
            .where(table.c.schedule_id == move.schedule_id)
            .values(run_at_ms=None, error=move.error, version=table.c.version + 1)
        )


def claimed_before(db: Db, claim_id: str) -> list[Claimed]:
    """What an earlier claim with this id took."""
    table = db.tables.occurrences
    statement = select(table).where(table.c.claim_id == claim_id).order_by(table.c.position)
    return [
        Claimed(
            row.schedule_id,
            row.flow,
            row.scope,
            row.name,
            row.nominal_ms,
            row.run_at_ms,
            row.missed,
            row.row_version,
        )
        for row in db.connection.execute(statement)
    ]


def _record(db: Db, claimed: Sequence[Claimed], claim_id: str, now_ms: int) -> list[Claimed]:
    """Write the ledger; an occurrence it already has was handed over before and is left out."""
    table = db.tables.occurrences
    rows = [
        {
            "schedule_id": each.schedule_id,
            "nominal_ms": each.nominal_ms,
            "flow": each.flow,
            "scope": each.scope,
            "name": each.name,
            "run_at_ms": each.run_at_ms,
            "state": "fired",
            "missed": each.missed,
            "row_version": each.version,
            "claim_id": claim_id,
            "position": position,
            "at_ms": now_ms,
        }
        for position, each in enumerate(claimed)
    ]
    if rows:
        db.connection.execute(db.dialect.insert_or_ignore(table), rows)
    return claimed_before(db, claim_id)


def list_rows(
    db: Db, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
) -> list[IndexRow]:
    """Index rows in the order they will be claimed."""
    check_limit(limit)
    table = db.tables.schedule_index
    statement = (
        select(*(table.c[_column(name)] for name in IndexRow.__slots__))
        .where(table.c.run_at_ms.is_not(None))
        .order_by(table.c.run_at_ms, table.c.priority.desc(), table.c.schedule_id)
        .limit(limit)
    )
    if flow is not None:
        statement = statement.where(table.c.flow == flow)
    if until_ms is not None:
        statement = statement.where(table.c.run_at_ms <= until_ms)
    return [IndexRow(*row) for row in db.connection.execute(statement)]


def list_quarantined(db: Db, limit: int = 100) -> list[Quarantined]:
    """Rows that cannot be evaluated."""
    check_limit(limit)
    table = db.tables.schedule_index
    statement = (
        select(table).where(table.c.error.is_not(None)).order_by(table.c.schedule_id).limit(limit)
    )
    return [
        Quarantined(
            ScheduleKey(row.flow, row.scope, row.name), row.schedule_id, row.nominal_ms, row.error
        )
        for row in db.connection.execute(statement)
    ]


def row_values(row: IndexRow) -> dict[str, Any]:
    """A row as column values."""
    return {_column(name): getattr(row, name) for name in IndexRow.__slots__}


def row_of(found: Row[Any]) -> IndexRow:
    """A row from a result that has its columns."""
    return IndexRow(**{name: getattr(found, _column(name)) for name in IndexRow.__slots__})


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Pieces small enough for one statement's parameters."""
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _column(field: str) -> str:
    # `trigger` is a keyword of SQL.
    return "trigger_json" if field == "trigger" else field


def _is(db: Db, key: ScheduleKey) -> ColumnElement[bool]:
    table = db.tables.schedule_index
    return and_(table.c.flow == key.flow, table.c.scope == key.scope, table.c.name == key.name)
