"""The public index: rows that an application stores itself, and claims of due rows.

A claim with an id is recorded in the ledger, so repeating it returns the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from duly.engine.kinds import (
    CLAIMED,
    OCCURRENCE,
    ROW,
    ROW_IDS,
    SCHEDULE,
    StoredOccurrence,
    StoredRow,
    claimed_of,
    key_parts,
    row_key,
)
from duly.engine.schedules.rows import due_rows, lanes, move_row
from duly.engine.transaction import Tx
from duly.model.index import CLAIM_LIMIT, MAX_CLAIM
from duly.model.index_rows import Advance, Claimed, IndexRow, advance, claimed_from
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import HandOver
from duly.rules.checks import check_claim, id_taken

HAND_OVERS: tuple[HandOver, ...] = get_args(HandOver)


def upsert(tx: Tx, row: IndexRow) -> None:
    """Store a row under its key; raise Conflict if another key has its id.

    If the timing is unchanged, the next time never moves backwards.
    """
    key = key_parts(row_key(row))
    item = tx.get(ROW, *key)
    is_new = item is None or item.row.schedule_id != row.schedule_id
    if is_new and tx.is_taken(ROW_IDS, row.schedule_id):
        raise id_taken(row.schedule_id, f"index row {row.flow}/{row.scope}/{row.name}")
    if item is None:
        tx.put(ROW, StoredRow(replace(row, version=1)))
        return
    earlier = item.row
    is_later = earlier.nominal_ms > row.nominal_ms
    if item.error is None and _is_same_timing(earlier, row) and is_later:
        row = replace(row, nominal_ms=earlier.nominal_ms, run_at_ms=earlier.run_at_ms)
    # Writing a row clears its quarantine error and its count of unknown-schedule answers.
    stored = StoredRow(replace(row, version=earlier.version + 1), number=item.number)
    tx.put(ROW, stored)


def _is_same_timing(one: IndexRow, other: IndexRow) -> bool:
    return (one.schedule_id, one.trigger) == (other.schedule_id, other.trigger)


def remove(tx: Tx, key: ScheduleKey) -> None:
    """Remove the row of a key; absent is fine."""
    if tx.get(ROW, *key_parts(key)) is not None:
        tx.delete(ROW, *key_parts(key))


def claim_due(
    tx: Tx,
    now_ms: int | None = None,
    limit: int = CLAIM_LIMIT,
    flow: str | None = None,
    claim_id: str | None = None,
) -> list[Claimed]:
    """Claim and advance due rows of any hand-over; a repeated claim id returns the same rows."""
    check_claim(now_ms, limit, claim_id)
    now_ms = tx.now_ms if now_ms is None else now_ms
    if claim_id is not None:
        tx.guard(claim_id)
        answered = _claimed_before(tx, claim_id)
        if answered:
            return answered
    flows = None if flow is None else [flow]
    among = [lane for each in HAND_OVERS for lane in lanes(tx, each, flows)]
    claimed: list[Claimed] = []
    # Rows that cannot be evaluated or were handed over before are not claimed; read further ones.
    while len(claimed) < limit and (items := due_rows(tx, among, now_ms, limit - len(claimed))):
        claimed += _claim(tx, items, now_ms, claim_id, len(claimed))
    return claimed


def _claimed_before(tx: Tx, claim_id: str) -> list[Claimed]:
    """Return the rows of an earlier claim with this id, in claim order."""
    found = tx.members(CLAIMED, claim_id, limit=MAX_CLAIM, hold=False)
    return [claimed_of(item) for item in found if item.row_version]


def _claim(
    tx: Tx, items: Sequence[StoredRow], now_ms: int, claim_id: str | None, position: int
) -> list[Claimed]:
    """Advance rows; return those that the claim took."""
    moves = advance([item.row for item in items], now_ms)
    _hold_ending(tx, items, moves)
    if claim_id is not None:
        keys = [(item.row.schedule_id, item.row.nominal_ms) for item in items]
        tx.get_many(OCCURRENCE, keys)
    claimed: list[Claimed] = []
    for item, move in zip(items, moves, strict=True):
        if not move_row(tx, item, move):
            continue
        if claim_id is not None:
            if tx.get(OCCURRENCE, item.row.schedule_id, item.row.nominal_ms) is not None:
                continue
            _record(tx, item.row, move, claim_id, position + len(claimed))
        claimed.append(claimed_from(item.row, move))
    return claimed


def _hold_ending(tx: Tx, items: Sequence[StoredRow], moves: Sequence[Advance]) -> None:
    """Hold the definitions that will be written: those that end or count runs."""
    tx.get_many(
        SCHEDULE,
        [
            key_parts(row_key(item.row))
            for item, move in zip(items, moves, strict=True)
            if move.nominal_ms is None or item.row.runs_left is not None
        ],
    )


def _record(tx: Tx, row: IndexRow, move: Advance, claim_id: str, position: int) -> None:
    """Write a claimed occurrence to the ledger as fired: its claimer fires it."""
    occurrence = Occurrence(
        schedule_id=row.schedule_id,
        nominal_ms=row.nominal_ms,
        until_ms=row.nominal_ms,
        count=1,
        run_at_ms=row.run_at_ms,
        state=OccurrenceState.FIRED,
        flow=row.flow,
        scope=row.scope,
        name=row.name,
    )
    tx.put(
        OCCURRENCE,
        StoredOccurrence(
            occurrence,
            claim_id=claim_id,
            position=position,
            missed=move.missed,
            row_version=row.version,
            at_ms=tx.now_ms,
        ),
    )
