"""Reconcile: rebuild the index from definitions, ledger and events, page by page.

Each page is its own transaction, so that a large index can be repaired while it is in use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from duly.engine.kinds import (
    CHARGED,
    ROW,
    SCHEDULE,
    SCHEDULE_EVENTS,
    StoredOccurrence,
    StoredRow,
    StoredSchedule,
    key_parts,
    row_key,
    schedule_key,
)
from duly.engine.schedules.rows import count_runs, end_schedule
from duly.engine.transaction import EVERY, Key, Tx
from duly.engine.upkeep.walks import ROWS, SCHEDULES, TAKEN, schedule_place
from duly.model.index import ReconcileReport
from duly.model.index_rows import IndexRow, index_row
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import Schedule, first_after_ms, is_indexed
from duly.rules.checks import with_times_of
from duly.rules.rule_history import retimed_ms
from duly.rules.runs import known_runs, left_of

RECONCILED = 500
"""Schedules or rows per page."""
_FACTS = 100
"""Events per schedule in the first read."""


@dataclass(frozen=True, slots=True)
class Page:
    """Result of one page, and the start of the next."""

    report: ReconcileReport
    flows: frozenset[str]
    """Flows that have schedules in this store; orphaned rows in them may be removed."""
    following: Key | None
    """None: this was the last page."""


def repair_rows(tx: Tx, flows: Collection[str] | None, since: Key) -> Page:
    """Repair the rows of one page of schedules, of the given flows or all (None)."""
    keys = tx.find(SCHEDULES, since=since, limit=RECONCILED + 1)
    seen = [item.schedule for item in tx.peek_many(SCHEDULE, keys).values()]
    following = schedule_place(seen[-1]) if len(keys) > RECONCILED and seen else None
    wanted = [
        key_parts(schedule_key(each))
        for each in seen
        if schedule_place(each) != following and (flows is None or each.flow in flows)
    ]
    rows = tx.get_many(ROW, wanted)
    found = tx.get_many(SCHEDULE, wanted)
    ids = [(item.schedule.id,) for item in found.values()]
    last = tx.peek_firsts(TAKEN, ids, is_reverse=True)
    decided = _retimed(tx, [str(schedule_id) for (schedule_id,) in last])
    counted = tx.count_many(CHARGED, _uncounted(found.values(), rows))
    report = ReconcileReport(checked=len(found))
    for key, item in found.items():
        schedule = item.schedule
        row = rows.get(key)
        is_own = row is not None and row.row.schedule_id == schedule.id
        row_left = row.row.runs_left if row is not None and is_own else None
        had = known_runs(schedule, row_left, counted.get((schedule.id,), 0))
        schedule = count_runs(tx, item, had)
        right = _rebuilt(schedule, last.get((schedule.id,)), decided.get(schedule.id, 0))
        report += _mend(tx, schedule, row, right)
    return Page(report, frozenset(item.schedule.flow for item in found.values()), following)


def _uncounted(found: Collection[StoredSchedule], rows: dict[Key, StoredRow]) -> list[Key]:
    """Return the partitions of CHARGED to count for schedules whose run count is not stored."""
    return [
        (item.schedule.id,)
        for item in found
        if item.schedule.definition.max_runs is not None
        and item.schedule.runs_had is None
        and key_parts(schedule_key(item.schedule)) not in rows
    ]


def _retimed(tx: Tx, ids: Sequence[str]) -> dict[str, int]:
    """Return when the timing of schedules last changed, by id."""
    facts = tx.histories(SCHEDULE_EVENTS, ids, _FACTS)
    long = [each for each, own in facts.items() if len(own) == _FACTS]
    facts |= tx.histories(SCHEDULE_EVENTS, long, EVERY) if long else {}
    return {schedule_id: retimed_ms(own) for schedule_id, own in facts.items()}


def _rebuilt(schedule: Schedule, last: StoredOccurrence | None, decided_ms: int) -> IndexRow | None:
    """Return the row computed from definition, ledger and events; None: it should have none."""
    # Start from the last nominal time, since catching up may have moved its run time; index_row()
    # subtracts the spread again.
    offset_ms = schedule.definition.trigger.offset_ms
    after_ms = first_after_ms(schedule.definition, schedule.updated_at_ms)
    if last is not None:
        # Times of the rule before it took effect were never times of this schedule.
        after_ms = max(last.occurrence.until_ms + offset_ms, decided_ms)
    left = left_of(schedule)
    return None if left == 0 else index_row(schedule, after_ms, runs_left=left)


def _mend(
    tx: Tx, schedule: Schedule, found: StoredRow | None, right: IndexRow | None
) -> ReconcileReport:
    """Write, replace or remove the row where it differs from the right one; return the counts."""
    key = schedule_key(schedule)
    if schedule.state == "quarantined":
        return ReconcileReport()
    if right is None:
        if schedule.state == "active" and is_indexed(schedule.definition):
            end_schedule(tx, key, schedule.id, "finished")
        if found is None:
            return ReconcileReport()
        tx.delete(ROW, *key_parts(key))
        return ReconcileReport(removed=1)
    if found is None:
        tx.put(ROW, StoredRow(replace(right, version=1)))
        return ReconcileReport(added=1)
    if found.error is None:
        right = with_times_of(found.row, right)
        if right == found.row:
            return ReconcileReport()
    right = replace(right, version=found.row.version + 1)
    tx.put(ROW, StoredRow(right, number=found.number))
    return ReconcileReport(corrected=1)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Number of rows that one page removed, and the start of the next."""

    removed: int
    following: Key | None
    """None: this was the last page."""


def remove_orphans(tx: Tx, flows: Collection[str], since: Key) -> Orphans:
    """Remove rows of schedules that no longer exist, in flows whose schedules are stored here.

    Rows upserted by a caller, with definitions stored elsewhere, stay. They have no events, or a
    `deleted` event: deletion removes the row too, so a row that exists after it was upserted later,
    by a caller that reused the id.
    """
    keys = tx.find(ROWS, since=since, limit=RECONCILED + 1)
    page = list(tx.peek_many(ROW, keys).items())
    is_last = len(keys) <= RECONCILED or not page
    following = None if is_last else (page[-1][1].row.schedule_id,)
    near = {
        key: item
        for key, item in page
        if item.row.flow in flows and (item.row.schedule_id,) != following
    }
    standing = tx.peek_many(SCHEDULE, near)
    alone = {key: item.row.schedule_id for key, item in near.items() if key not in standing}
    facts = tx.histories(SCHEDULE_EVENTS, alone.values(), EVERY)
    orphans = [key for key, owner in alone.items() if _was_stored(facts.get(owner, []))]
    held = tx.get_many(ROW, orphans)
    stored = tx.get_many(SCHEDULE, orphans)
    removed = 0
    for key, item in held.items():
        if key not in stored and item.row.schedule_id == alone[key]:
            tx.delete(ROW, *key_parts(row_key(item.row)))
            removed += 1
    return Orphans(removed, following)


def _was_stored(facts: Collection[ScheduleEvent]) -> bool:
    return bool(facts) and all(fact.kind != "deleted" for fact in facts)
