"""The schedule index, and claims on it.

A claim is one transaction: lock due rows, skipping those of other claims, read their rules, compute
the advance in pure code and write it as a batch. If the process dies, the rows stay due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select

from duly.engine.ids import Ids
from duly.engine.schedules import index as index_cases
from duly.model.index import CLAIM_LIMIT, IndexHealth, Quarantined
from duly.model.index_rows import Claimed, IndexRow, Moves, advance_columns
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import ScheduleId
from duly.rules.checks import SCHEDULES, check_claim, check_limit
from duly.stores.sql.db import Db, columns
from duly.stores.sql.fast import lanes
from duly.stores.sql.rows import index_rows
from duly.stores.sql.source import transact


def claim_due(
    db: Db,
    now_ms: int | None = None,
    limit: int = CLAIM_LIMIT,
    flow: str | None = None,
    claim_id: str | None = None,
) -> list[Claimed]:
    """Claim up to `limit` due rows, oldest first, and advance them; return what fired."""
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
        if not _is_plain(due, moves):
            at = db.at(due.now_ms)
            return transact(at, Ids(), index_cases.claim_due, now_ms, limit, flow, claim_id)
        db.dialect.advance_rows(db, due.numbers, due.versions, moves)
        claimed = _claimed(due, moves)
        if claim_id is not None:
            claimed = _record(db, claimed, claim_id, due.now_ms)
        # All of these were handed over before: look for later rows.
        if claimed:
            return claimed


def _is_plain(due: _Due, moves: Moves) -> bool:
    """Return whether all rows move to a next time, without errors or a limit on their runs."""
    is_going_on = not moves.errors and None not in moves.run_at_ms
    return is_going_on and not any(left is not None for left in due.runs_left)


@dataclass(frozen=True, slots=True)
class _Due:
    """Locked rows in claim order, one list per column, and the deciding time."""

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
    """Lock and return due rows, or None."""
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
    """Return the keys and triggers of locked rows as columns, in the order of `numbers`."""
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


def _claimed(due: _Due, moves: Moves) -> list[Claimed]:
    """Return the claimed rows with the times that fired."""
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
    return list(map(Claimed._make, fields))


def claimed_before(db: Db, claim_id: str) -> list[Claimed]:
    """Return the rows that an earlier claim with this id took."""
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
    """Write the ledger; return the rows except those already handed over before."""
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
    """Return index rows in claim order."""
    check_limit(limit)
    found = lanes.find(db, flows=None if flow is None else [flow])
    reach_ms = lanes.ALWAYS_MS if until_ms is None else until_ms
    places = lanes.first_places(db, found, reach_ms, limit)
    return rows_of(db, [place.row_id for place in places])


def rows_of(db: Db, numbers: Sequence[int]) -> list[IndexRow]:
    """Return rows by their numbers, in that order."""
    statement = index_rows.numbered(db, numbers)
    found = {row.row_id: index_rows.row_of(row) for row in db.connection.execute(statement)}
    return [found[number] for number in numbers if number in found]


def list_quarantined(db: Db, limit: int = 100) -> list[Quarantined]:
    """Return rows that cannot be evaluated."""
    check_limit(limit)
    index = db.tables.schedule_index
    statement = (
        index_rows.whole(db).where(index.c.error.is_not(None)).order_by(index.c.row_id).limit(limit)
    )
    return [
        Quarantined(
            ScheduleKey(row.flow, row.scope, row.name), row.schedule_id, row.nominal_ms, row.error
        )
        for row in db.connection.execute(statement)
    ]


def index_health(db: Db) -> IndexHealth:
    """Compare the number of stored and indexed schedules."""
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    table = db.tables.resources
    active = and_(table.c.collection == SCHEDULES, table.c.state == "active")
    external = and_(active, table.c.hand_over == "external")
    active = and_(active, table.c.hand_over.is_distinct_from("external"))
    has_row = (
        index_rows.whole(db)
        .where(rules.c.schedule_id == table.c.id, index.c.run_at_ms.is_not(None))
        .exists()
    )
    due = index.c.run_at_ms <= db.clock()
    planned, posts = (and_(due, index.c.hand_over == name) for name in ("jobs", "http"))

    def count(condition: ColumnElement[bool]) -> int:
        return int(db.connection.execute(select(func.count()).where(condition)).scalar_one())

    def oldest(condition: ColumnElement[bool]) -> int | None:
        found = select(func.min(index.c.run_at_ms)).where(condition)
        first: int | None = db.connection.execute(found).scalar()
        return first

    return IndexHealth(
        active=count(active),
        rows=count(index.c.run_at_ms.is_not(None)),
        missing=count(and_(active, ~has_row)),
        quarantined=count(index.c.error.is_not(None)),
        due=count(planned),
        oldest_due_ms=oldest(planned),
        posts_due=count(posts),
        oldest_post_ms=oldest(posts),
        external=count(external),
    )
