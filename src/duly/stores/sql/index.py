"""Station 3: the schedule index, and claims on it.

A claim is one transaction: lock due rows past other claimers' locks, read their rules, advance them
in pure code, write the advance as a batch. A process that dies in between leaves the rows due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select, update
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
from duly.stores.sql import events, rows
from duly.stores.sql.db import Db, tuples


def upsert(db: Db, row: IndexRow) -> None:
    """Store the row of its key; a slow writer never sets the hand back."""
    here = rows.under(db, [ScheduleKey(row.flow, row.scope, row.name)])
    found = next(iter(rows.locked(db, here)), None)
    if found is None or found.schedule_id != row.schedule_id:
        _refuse_second_row(db, row, here)
    if found is None:
        rows.insert(db, [replace(row, version=1)])
        return
    is_same = (found.schedule_id, found.trigger_json) == (row.schedule_id, row.trigger)
    if is_same and found.error is None and found.nominal_ms > row.nominal_ms:
        row = replace(row, nominal_ms=found.nominal_ms, run_at_ms=found.run_at_ms)
    rows.update(db, [(found.row_id, replace(row, version=found.version + 1))])


def _refuse_second_row(db: Db, row: IndexRow, here: ColumnElement[bool]) -> None:
    # Another writer may have stored this very row meanwhile; the insert meets it and tries again.
    rules = db.tables.schedule_rules
    statement = select(rules.c.flow, rules.c.scope, rules.c.name).where(
        rules.c.schedule_id == row.schedule_id, ~here
    )
    other = db.connection.execute(statement).first()
    if other is not None:
        raise Conflict(f"schedule id {row.schedule_id!r} belongs to the row {'/'.join(other)}")


def remove(db: Db, key: ScheduleKey) -> None:
    """Remove the row of a key; absent is fine."""
    rows.remove(db, [found.row_id for found in rows.locked(db, rows.under(db, [key]))])


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
        numbers, due, now = _due(db, now_ms, limit, flow)
        if not due:
            return []
        moves = advance(due, now)
        write_moves(db, numbers, moves, now)
        pairs = zip(due, moves, strict=True)
        claimed = [claimed_from(row, move) for row, move in pairs if move.error is None]
        if claim_id is not None:
            claimed = _record(db, claimed, claim_id, now)
        # Rows that could not be evaluated are out of the due range now: look behind them.
        if claimed:
            return claimed


def _due(
    db: Db, now_ms: int | None, limit: int, flow: str | None
) -> tuple[list[int], list[Due], int]:
    """Due rows, locked, in claim order, with their numbers; and the time that decided."""
    index = db.tables.schedule_index
    clock = db.clock(now_ms)
    moving = (index.c.nominal_ms, index.c.run_at_ms, index.c.runs_left, index.c.version)
    statement = (
        select(index.c.row_id, clock.label("now_ms"), *moving)
        .where(index.c.run_at_ms <= clock, index.c.trigger_version <= TRIGGER_VERSION)
        .order_by(*_claim_order(db))
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    if flow is not None:
        statement = statement.where(index.c.flow == flow)
    times = {row[0]: row for row in tuples(db.connection.execute(statement))}
    if not times:
        return [], [], 0
    numbers = list(times)
    due = {rule[0]: Due._make(rule[1:] + times[rule[0]][2:]) for rule in _rules(db, numbers)}
    return numbers, [due[number] for number in numbers], int(times[numbers[0]][1])


def _rules(db: Db, numbers: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """What locked rows go by, and whose they are: a number and the first fields of Due."""
    rules = db.tables.schedule_rules
    statement = select(
        rules.c.row_id,
        rules.c.schedule_id,
        rules.c.flow,
        rules.c.scope,
        rules.c.name,
        rules.c.trigger_json,
    ).where(db.dialect.among(rules.c.row_id, numbers))
    return tuples(db.connection.execute(statement))


def _claim_order(db: Db) -> tuple[ColumnElement[int], ...]:
    index = db.tables.schedule_index
    return index.c.run_at_ms, index.c.priority.desc(), index.c.row_id


def write_moves(db: Db, numbers: Sequence[int], moves: Sequence[Advance], now_ms: int) -> None:
    """Advance, finish or quarantine; the two rare cases cost statements only when they happen."""
    if all(move.run_at_ms is not None for move in moves):
        db.dialect.advance_rows(db.connection, db.tables, numbers, moves)
        return
    pairs = dict(zip(numbers, moves, strict=True))
    going = {number: move for number, move in pairs.items() if move.run_at_ms is not None}
    broken = {number: move for number, move in pairs.items() if move.error is not None}
    ended = {n: move for n, move in pairs.items() if n not in going and n not in broken}
    if going:
        db.dialect.advance_rows(db.connection, db.tables, list(going), list(going.values()))
    if ended:
        rows.remove(db, list(ended))
        events.end_schedules(db, list(ended.values()), "finished", now_ms)
    if broken:
        quarantine(db, broken)
        events.end_schedules(db, list(broken.values()), "quarantined", now_ms)


def quarantine(db: Db, moves: Mapping[int, Advance]) -> None:
    """Take rows out of the due range and keep why."""
    table = db.tables.schedule_index
    for number, move in moves.items():
        db.connection.execute(
            update(table)
            .where(table.c.row_id == number)
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
    entries = [
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
    if entries:
        db.connection.execute(db.dialect.insert_or_ignore(table), entries)
    return claimed_before(db, claim_id)


def list_rows(
    db: Db, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
) -> list[IndexRow]:
    """Index rows in the order they will be claimed."""
    check_limit(limit)
    index = db.tables.schedule_index
    statement = (
        rows.whole(db)
        .where(index.c.run_at_ms.is_not(None))
        .order_by(*_claim_order(db))
        .limit(limit)
    )
    if flow is not None:
        statement = statement.where(index.c.flow == flow)
    if until_ms is not None:
        statement = statement.where(index.c.run_at_ms <= until_ms)
    return [rows.row_of(row) for row in db.connection.execute(statement)]


def list_quarantined(db: Db, limit: int = 100) -> list[Quarantined]:
    """Rows that cannot be evaluated."""
    check_limit(limit)
    index = db.tables.schedule_index
    statement = (
        rows.whole(db).where(index.c.error.is_not(None)).order_by(index.c.row_id).limit(limit)
    )
    return [
        Quarantined(
            ScheduleKey(row.flow, row.scope, row.name), row.schedule_id, row.nominal_ms, row.error
        )
        for row in db.connection.execute(statement)
    ]
