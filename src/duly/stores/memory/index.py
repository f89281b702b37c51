"""The index in memory: rows, claims, and the ledger that makes a claim repeatable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duly.glass_store import DueRows
from duly.occurrences import TRIGGER_VERSION, Advance, Claimed, IndexRow, advance, claimed_from
from duly.schedules import HandOver
from duly.store import Quarantined
from duly.stores.checks import check_claim, check_limit, id_taken
from duly.stores.memory import ledger
from duly.stores.memory.tables import Tables, row_key


def upsert(tables: Tables, row: IndexRow) -> None:
    """Store a row; with the same timing the hand is never set back."""
    key = row_key(row)
    earlier = tables.rows.get(key)
    if tables.has_row_of(row.schedule_id, besides=key):
        raise id_taken(row.schedule_id, f"index row {row.flow}/{row.scope}/{row.name}")
    if earlier is None:
        tables.put_row(replace(row, version=1))
        return
    if (
        key not in tables.errors
        and same_timing(earlier, row)
        and earlier.nominal_ms > row.nominal_ms
    ):
        row = replace(row, nominal_ms=earlier.nominal_ms, run_at_ms=earlier.run_at_ms)
    tables.put_row(replace(row, version=earlier.version + 1))


def same_timing(one: IndexRow, other: IndexRow) -> bool:
    """Whether two rows speak of the same times."""
    return (one.schedule_id, one.trigger) == (other.schedule_id, other.trigger)


def claim_due(
    tables: Tables, now_ms: int, limit: int, flow: str | None, claim_id: str | None
) -> list[Claimed]:
    """Take due rows and advance them; the same claim id gives the same answer."""
    check_claim(now_ms, limit, claim_id)
    if claim_id is not None and (answered := taken_by(tables, claim_id)):
        return answered
    claimed: list[Claimed] = []
    while len(claimed) < limit and (rows := due(tables, now_ms, flow)[: limit - len(claimed)]):
        for row, move in zip(rows, advance(rows, now_ms), strict=True):
            if move_row(tables, row, move, now_ms) and is_new(tables, row, claim_id):
                claimed.append(claimed_from(row, move))
                record(tables, claimed[-1], claim_id)
    return claimed


def due(tables: Tables, now_ms: int, flow: str | None) -> list[IndexRow]:
    """Rows to claim, in order."""
    return [
        row
        for row in in_order(tables)
        if row.run_at_ms <= now_ms
        and row.trigger_version <= TRIGGER_VERSION
        and flow in (None, row.flow)
    ]


def in_order(tables: Tables) -> list[IndexRow]:
    """Rows that have a next time, as they will be claimed; of equals, the one stored first."""
    rows = (row for key, row in tables.rows.items() if key not in tables.errors)
    return sorted(rows, key=lambda row: (row.run_at_ms, -row.priority))


def due_by_hand_over(rows: Sequence[IndexRow]) -> dict[HandOver, DueRows]:
    """Due rows, in order, that a planner or a tick is to take; those of callers are left out."""
    times: dict[HandOver, list[int]] = {}
    for row in rows:
        if row.hand_over != "external":
            times.setdefault(row.hand_over, []).append(row.run_at_ms)
    return {name: DueRows(len(found), found[0]) for name, found in times.items()}


def move_row(tables: Tables, row: IndexRow, move: Advance, now_ms: int) -> bool:
    """Write where a row goes, and charge the runs it used; whether it fired."""
    if row.runs_left is not None and move.runs_left is not None:
        tables.charge(row, row.runs_left - move.runs_left)
    if move.error is not None:
        tables.errors[row_key(row)] = move.error
        tables.end_schedule(row.schedule_id, "quarantined", now_ms, move.error)
        return False
    if move.nominal_ms is None or move.run_at_ms is None:
        tables.drop_row(row_key(row))
        tables.end_schedule(row.schedule_id, "finished", now_ms)
        return True
    moved = replace(
        row,
        nominal_ms=move.nominal_ms,
        run_at_ms=move.run_at_ms,
        runs_left=move.runs_left,
        version=row.version + 1,
    )
    tables.rows[row_key(row)] = moved
    return True


def is_new(tables: Tables, row: IndexRow, claim_id: str | None) -> bool:
    """Whether a claim with an id may take this occurrence."""
    return claim_id is None or (row.schedule_id, row.nominal_ms) not in tables.ledger


def record(tables: Tables, claimed: Claimed, claim_id: str | None) -> None:
    """Write an occurrence to the ledger, when the claim has an id."""
    if claim_id is not None:
        ledger.put_claimed(tables, claimed, claim_id)


def taken_by(tables: Tables, claim_id: str) -> list[Claimed]:
    """What a claim id took, in claim order."""
    return [
        entry.claimed
        for entry in tables.ledger.values()
        if entry.claimed is not None and entry.claim_id == claim_id
    ]


def rows_page(tables: Tables, flow: str | None, until_ms: int | None, limit: int) -> list[IndexRow]:
    """Rows in the order they will be claimed."""
    check_limit(limit)
    rows = [
        row
        for row in in_order(tables)
        if flow in (None, row.flow) and (until_ms is None or row.run_at_ms <= until_ms)
    ]
    return rows[:limit]


def quarantined_page(tables: Tables, limit: int) -> list[Quarantined]:
    """Rows that cannot be evaluated, by key."""
    check_limit(limit)
    keys = sorted(tables.errors, key=lambda key: (key.flow, key.scope, key.name))
    return [
        Quarantined(
            key, tables.rows[key].schedule_id, tables.rows[key].nominal_ms, tables.errors[key]
        )
        for key in keys[:limit]
    ]
