"""Index rows: finding due rows, advancing them, counting runs and ending schedules.

A transaction that moves a row holds it. It holds the definition only to write to it: the run count
of a schedule with `max_runs`, or the final state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from duly.engine.kinds import (
    CHARGED,
    DUE,
    ROW,
    SCHEDULE,
    SCHEDULE_EVENTS,
    SCHEDULE_IDS,
    StoredRow,
    StoredSchedule,
    claim_order,
    key_parts,
    row_key,
    schedule_key,
)
from duly.engine.transaction import Key, Tx
from duly.model.index_rows import TRIGGER_VERSION, Advance, IndexRow
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey
from duly.model.schedules import HandOver, Schedule, ScheduleId
from duly.rules.runs import known_runs, left_of


def in_order(items: Iterable[StoredRow]) -> list[StoredRow]:
    """Return rows in claim order, which is the order of the index DUE."""
    return sorted(items, key=claim_order)


def lanes(tx: Tx, hand_over: HandOver, flows: Iterable[str] | None) -> list[Key]:
    """Return the partitions of DUE for a hand-over: of the given flows, or all that have rows."""
    names = tx.partitions(DUE, hand_over) if flows is None else dict.fromkeys(flows)
    return [(hand_over, flow) for flow in names]


def due_rows(tx: Tx, among: Sequence[Key], until_ms: int, limit: int) -> list[StoredRow]:
    """Return and hold up to `limit` rows that are due by an instant, in claim order.

    Rows that this transaction has moved count with their new times.
    """
    changed = tx.changes(ROW)
    keys = tx.find_among(DUE, among, upto=(until_ms,), limit=limit + len(changed))
    wanted = set(among)
    items = tx.get_many(ROW, [*keys, *changed]).values()
    due = [
        item
        for item in items
        if (item.row.hand_over, item.row.flow) in wanted and is_due(item, None, until_ms)
    ]
    return in_order(due)[:limit]


def is_due(item: StoredRow, hand_over: HandOver | None, until_ms: int) -> bool:
    """Return whether a row is due by an instant and has this hand-over (None: any)."""
    row = item.row
    is_ours = item.error is None and row.trigger_version <= TRIGGER_VERSION
    return is_ours and hand_over in (None, row.hand_over) and row.run_at_ms <= until_ms


def definition_of(tx: Tx, row: IndexRow, *, hold: bool = False) -> StoredSchedule | None:
    """Return the definition of a row; None: it is not in this store."""
    read = tx.get if hold else tx.peek
    item = read(SCHEDULE, *key_parts(row_key(row)))
    return None if item is None or item.schedule.id != row.schedule_id else item


def hold_schedule(tx: Tx, schedule_id: ScheduleId) -> StoredSchedule | None:
    """Return a schedule by its id, and hold it and its row; None: no such schedule."""
    for key in tx.find(SCHEDULE_IDS, schedule_id, limit=1):
        tx.get(ROW, *key)
        item = tx.get(SCHEDULE, *key)
        if item is not None and item.schedule.id == schedule_id:
            return item
    return None


def move_row(tx: Tx, item: StoredRow, move: Advance) -> bool:
    """Advance, finish or quarantine a held row, and charge its runs; return whether it fired."""
    row = item.row
    if row.runs_left is not None and move.runs_left is not None:
        charge(tx, row, row.runs_left - move.runs_left)
    key = row_key(row)
    if move.error is not None:
        broken = replace(row, version=row.version + 1)
        tx.put(ROW, item._replace(row=broken, error=move.error))
        end_schedule(tx, key, row.schedule_id, "quarantined", move.error)
        return False
    if move.nominal_ms is None or move.run_at_ms is None:
        tx.delete(ROW, *key_parts(key))
        end_schedule(tx, key, row.schedule_id, "finished")
        return True
    moved = replace(
        row,
        nominal_ms=move.nominal_ms,
        run_at_ms=move.run_at_ms,
        runs_left=move.runs_left,
        version=row.version + 1,
    )
    tx.put(ROW, item._replace(row=moved))
    return True


def end_schedule(
    tx: Tx,
    key: ScheduleKey,
    schedule_id: ScheduleId,
    state: Literal["finished", "quarantined"],
    error: str | None = None,
) -> None:
    """Store the final state on a schedule's definition; do nothing if the key has another id.

    The definition keeps its version.
    """
    item = tx.get(SCHEDULE, *key_parts(key))
    if item is None or item.schedule.id != schedule_id:
        return
    ended = replace(item.schedule, state=state, error=error)
    finished_at_ms = tx.now_ms if state == "finished" else None
    tx.put(SCHEDULE, StoredSchedule(ended, finished_at_ms))
    detail: dict[str, object] = {} if error is None else {"error": error}
    tx.append(SCHEDULE_EVENTS, ScheduleEvent(schedule_id, state, tx.now_ms, "system", detail))


def end_row(tx: Tx, schedule: Schedule) -> None:
    """Finish a held schedule and remove its row."""
    key = schedule_key(schedule)
    item = tx.get(ROW, *key_parts(key))
    if item is not None and item.row.schedule_id == schedule.id:
        tx.delete(ROW, *key_parts(key))
    end_schedule(tx, key, schedule.id, "finished")


def charge(tx: Tx, row: IndexRow, runs: int) -> None:
    """Add runs of a row to the run count of its definition, if it is stored here."""
    item = definition_of(tx, row, hold=True) if runs else None
    if item is not None:
        had = known_runs(item.schedule, row.runs_left)
        count_runs(tx, item, None if had is None else had + runs)


def count_runs(tx: Tx, item: StoredSchedule, runs_had: int | None) -> Schedule:
    """Store the run count of a held schedule; return the schedule with that count."""
    counted = replace(item.schedule, runs_had=runs_had)
    if counted != item.schedule:
        tx.put(SCHEDULE, item._replace(schedule=counted))
    return counted


def counted(tx: Tx, item: StoredSchedule) -> StoredSchedule:
    """Return a held schedule with its run count, computed if an older release stored none."""
    schedule = item.schedule
    if schedule.runs_had is not None or schedule.definition.max_runs is None:
        return item
    row = tx.get(ROW, *key_parts(schedule_key(schedule)))
    in_ledger = tx.count(CHARGED, schedule.id) if row is None else 0
    had = known_runs(schedule, None if row is None else row.row.runs_left, in_ledger)
    return item._replace(schedule=replace(schedule, runs_had=had))


def charge_one(tx: Tx, item: StoredSchedule) -> bool:
    """Charge one run to a schedule without advancing its row; return whether it was the last."""
    schedule = item.schedule
    left = left_of(schedule)
    if left is None:
        return False
    standing = tx.get(ROW, *key_parts(schedule_key(schedule)))
    count_runs(tx, item, (schedule.runs_had or 0) + 1)
    if standing is not None and standing.row.schedule_id == schedule.id:
        row = standing.row
        charged = replace(row, runs_left=left - 1, version=row.version + 1)
        tx.put(ROW, standing._replace(row=charged))
    return left == 1
