"""Station 3: the schedule index, and claims on it.

A claim is one transaction: lock due rows past other claimers' locks, read their rules, advance them
in pure code, write the advance as a batch. A process that dies in between leaves the rows due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.sql.elements import ColumnElement

from duly.occurrences import (
    Advance,
    Claimed,
    IndexRow,
    Moves,
    advance_columns,
)
from duly.schedules import ScheduleId
from duly.store import CLAIM_LIMIT, Quarantined, ScheduleKey
from duly.stores.checks import check_claim, check_limit, id_taken
from duly.stores.sql import events, lanes, rows
from duly.stores.sql.db import Db, columns
from duly.stores.sql.runs import Charge, charge


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
        raise id_taken(row.schedule_id, f"index row {row.flow}/{row.scope}/{row.name}")


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
        due = _due(db, now_ms, limit, flow)
        if due is None:
            return []
        moves = advance_columns(
            due.triggers, due.nominal_ms, due.run_at_ms, due.runs_left, due.now_ms
        )
        _charge(db, due, moves)
        write_moves(db, due.numbers, due.schedule_ids, moves, due.now_ms)
        claimed = _claimed(due, moves)
        if claim_id is not None:
            claimed = _record(db, claimed, claim_id, due.now_ms)
        # Rows that could not be evaluated are out of the due range now: look behind them.
        if claimed:
            return claimed


@dataclass(frozen=True, slots=True)
class _Due:
    """Locked rows in claim order, a list for each column, and the time that decided."""

    now_ms: int
    numbers: list[int]
    nominal_ms: list[int]
    run_at_ms: list[int]
    runs_left: list[int | None]
    versions: list[int]
    schedule_ids: list[ScheduleId]
    flows: list[str]
    scopes: list[str]
    names: list[str]
    triggers: list[str]


def _due(db: Db, now_ms: int | None, limit: int, flow: str | None) -> _Due | None:
    """Due rows, locked."""
    at = db if now_ms is None else db.at(now_ms)
    found = lanes.find(at, flows=None if flow is None else [flow])
    if not found:
        return None
    now_ms = found[0].now_ms
    numbers, *times = lanes.lock_due(db, found, now_ms, limit)
    if not numbers:
        return None
    return _Due(now_ms, numbers, *times, *_rules(db, numbers))


def _rules(db: Db, numbers: Sequence[int]) -> list[list[Any]]:
    """What locked rows go by, and whose they are, in the order of their numbers."""
    rules = db.tables.schedule_rules
    statement = select(
        rules.c.row_id,
        rules.c.schedule_id,
        rules.c.flow,
        rules.c.scope,
        rules.c.name,
        rules.c.trigger_json,
    ).where(db.dialect.among(rules.c.row_id, numbers))
    found, *ruling = columns(db.connection.execute(statement))
    places = {number: place for place, number in enumerate(found)}
    order = [places[number] for number in numbers]
    return [[column[place] for place in order] for column in ruling]


def _charge(db: Db, due: _Due, moves: Moves) -> None:
    """Count the runs of rows whose schedules are stored here and have a limit."""
    before = zip(due.schedule_ids, due.runs_left, moves.runs_left, strict=True)
    charge(
        db,
        {
            each: Charge(left - after, left)
            for each, left, after in before
            if left is not None and after is not None
        },
    )


def _claimed(due: _Due, moves: Moves) -> list[Claimed]:
    """What fired."""
    fields = zip(
        due.schedule_ids,
        due.flows,
        due.scopes,
        due.names,
        due.nominal_ms,
        due.run_at_ms,
        moves.missed,
        due.versions,
        strict=True,
    )
    claimed = list(map(Claimed._make, fields))
    if moves.errors:
        return [each for i, each in enumerate(claimed) if i not in moves.errors]
    return claimed


def write_moves(
    db: Db, numbers: Sequence[int], schedule_ids: Sequence[ScheduleId], moves: Moves, now_ms: int
) -> None:
    """Advance, finish or quarantine; the two rare cases cost statements only when they happen."""
    if None not in moves.run_at_ms:
        db.dialect.advance_rows(db, numbers, moves)
        return
    going = [i for i, ms in enumerate(moves.run_at_ms) if ms is not None]
    stopped = {
        numbers[i]: moves.of(i, schedule_ids[i])
        for i, ms in enumerate(moves.run_at_ms)
        if ms is None
    }
    ended = {number: move for number, move in stopped.items() if move.error is None}
    broken = {number: move for number, move in stopped.items() if move.error is not None}
    if going:
        db.dialect.advance_rows(db, [numbers[i] for i in going], moves.only(going))
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
    found = lanes.find(db, flows=None if flow is None else [flow])
    reach_ms = lanes.ALWAYS_MS if until_ms is None else until_ms
    places = lanes.first_places(db, found, reach_ms, limit)
    return rows_of(db, [place.row_id for place in places])


def rows_of(db: Db, numbers: Sequence[int]) -> list[IndexRow]:
    """Return rows by their numbers, in that order."""
    index = db.tables.schedule_index
    statement = rows.whole(db).where(db.dialect.among(index.c.row_id, numbers))
    found = {row.row_id: rows.row_of(row) for row in db.connection.execute(statement)}
    return [found[number] for number in numbers if number in found]


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
