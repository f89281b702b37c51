"""Reconcile: the index rebuilt from definitions, ledger and events, page by page.

Each page is a transaction of its own, so that a large index is mended beside its users.
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
"""Schedules, or rows, of one page."""
_FACTS = 100
"""Facts about a schedule that are read at first."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one page gave, and where the next one begins."""

    report: ReconcileReport
    flows: frozenset[str]
    """Flows that have schedules here: what is left of others in them may be removed."""
    following: Key | None
    """None: this was the last one."""


def mend_rows(tx: Tx, flows: Collection[str] | None, since: Key) -> Page:
    """Mend the rows of one page of schedules."""
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
    """Return partitions of the ledger that say how many runs a schedule with a limit has had."""
    return [
        (item.schedule.id,)
        for item in found
        if item.schedule.definition.max_runs is not None
        and item.schedule.runs_had is None
        and key_parts(schedule_key(item.schedule)) not in rows
    ]


def _retimed(tx: Tx, ids: Sequence[str]) -> dict[str, int]:
    """Return when the timing of schedules was last decided."""
    facts = tx.histories(SCHEDULE_EVENTS, ids, _FACTS)
    long = [each for each, own in facts.items() if len(own) == _FACTS]
    facts |= tx.histories(SCHEDULE_EVENTS, long, EVERY) if long else {}
    return {schedule_id: retimed_ms(own) for schedule_id, own in facts.items()}


def _rebuilt(schedule: Schedule, last: StoredOccurrence | None, decided_ms: int) -> IndexRow | None:
    """Return the row that definition, ledger and events alone give."""
    # The last time, not its run time, which catching up may have moved; index_row() takes the
    # spread off again.
    offset_ms = schedule.definition.trigger.offset_ms
    after_ms = first_after_ms(schedule.definition, schedule.updated_at_ms)
    if last is not None:
        # What the rule says of the time before it held was never a time of this schedule.
        after_ms = max(last.occurrence.until_ms + offset_ms, decided_ms)
    left = left_of(schedule)
    return None if left == 0 else index_row(schedule, after_ms, runs_left=left)


def _mend(
    tx: Tx, schedule: Schedule, found: StoredRow | None, right: IndexRow | None
) -> ReconcileReport:
    """Write what is right where something else stands."""
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
    """How many rows one page removed, and where the next one begins."""

    removed: int
    following: Key | None
    """None: this was the last one."""


def remove_orphans(tx: Tx, flows: Collection[str], since: Key) -> Orphans:
    """Remove what is left of schedules that are gone, in flows that keep their schedules here.

    Rows that a caller upserted, with definitions kept elsewhere, stay. They have no events, or the
    event of a deletion: deleting a schedule removes its row as well, so such a row came afterwards,
    from a caller who took over the id.
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
    gone = [key for key, owner in alone.items() if _was_stored(facts.get(owner, []))]
    held = tx.get_many(ROW, gone)
    stored = tx.get_many(SCHEDULE, gone)
    removed = 0
    for key, item in held.items():
        if key not in stored and item.row.schedule_id == alone[key]:
            tx.delete(ROW, *key_parts(row_key(item.row)))
            removed += 1
    return Orphans(removed, following)


def _was_stored(facts: Collection[ScheduleEvent]) -> bool:
    return bool(facts) and all(fact.kind != "deleted" for fact in facts)
