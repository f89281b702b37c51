"""Upkeep in memory: the index against the documents and the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duly.occurrences import IndexRow, index_row
from duly.schedules import Schedule
from duly.store import IndexHealth, ReconcileReport
from duly.stores.checks import with_times_of
from duly.stores.memory import ledger
from duly.stores.memory.index import in_order
from duly.stores.memory.ledger import FREE, entries, runs
from duly.stores.memory.tables import Tables, schedule_key


def reconcile(tables: Tables, now_ms: int, flows: Sequence[str] | None) -> ReconcileReport:
    """Make every row say what its schedule says."""
    schedules = [each for each in tables.schedules() if flows is None or each.flow in flows]
    kept = {schedule_key(each) for each in schedules if each.state in ("active", "quarantined")}
    declared = {each.flow for each in schedules} if flows is None else set(flows)
    unwanted = [key for key in tables.rows if key.flow in declared and key not in kept]
    for key in unwanted:
        tables.drop_row(key)
    report = ReconcileReport(checked=len(schedules), removed=len(unwanted))
    for schedule in schedules:
        if schedule.state == "active":
            report = _reconcile_one(tables, now_ms, schedule, report)
    return report


def _reconcile_one(
    tables: Tables, now_ms: int, schedule: Schedule, report: ReconcileReport
) -> ReconcileReport:
    key = schedule_key(schedule)
    row = tables.rows.get(key)
    wanted = _rebuilt(tables, schedule)
    if row is not None and wanted is not None and key not in tables.errors:
        wanted = with_times_of(row, wanted)
        if wanted == row:
            return report
    if wanted is None:
        tables.drop_row(key)
        tables.end_schedule(schedule.id, "finished", now_ms)
        return report if row is None else replace(report, removed=report.removed + 1)
    tables.put_row(replace(wanted, version=1 if row is None else row.version + 1))
    if row is None:
        return replace(report, added=report.added + 1)
    return replace(report, corrected=report.corrected + 1)


def _rebuilt(tables: Tables, schedule: Schedule) -> IndexRow | None:
    """The row that documents, ledger and events alone give."""
    known = [
        entry.occurrence
        for entry in entries(tables, schedule.id)
        if entry.occurrence.state not in FREE and not ledger.is_extra(entry)
    ]
    # The last time, not its run time, which catching up may have moved; index_row() takes the
    # spread off again.
    offset_ms = schedule.definition.trigger.offset_ms
    after_ms = schedule.updated_at_ms
    if known:
        # What the rule says of the time before it held was never a time of this schedule.
        last_ms = max(each.until_ms for each in known)
        after_ms = max(last_ms + offset_ms, _retimed_ms(tables, schedule))
    most = schedule.definition.max_runs
    runs_left = None if most is None else max(0, most - runs(tables, schedule.id))
    return None if runs_left == 0 else index_row(schedule, after_ms, runs_left=runs_left)


def _retimed_ms(tables: Tables, schedule: Schedule) -> int:
    """When its timing was last decided.

    An edit of one that had ended counts whatever it says: one of them gave it another beginning.
    """
    decided_ms, has_ended = 0, False
    for event in (each for each in tables.events if each.schedule_id == schedule.id):
        has_ended = has_ended or event.kind in ("finished", "quarantined")
        is_edit = event.kind == "changed" and has_ended
        if event.kind in ("created", "resumed") or "trigger" in event.detail or is_edit:
            decided_ms = event.at_ms
    return decided_ms


def health(tables: Tables, now_ms: int) -> IndexHealth:
    """Count what is stored against what is indexed."""
    active = {each.id for each in tables.schedules() if each.state == "active"}
    rows = in_order(tables)
    due = [row.run_at_ms for row in rows if row.run_at_ms <= now_ms]
    return IndexHealth(
        active=len(active),
        rows=len(rows),
        missing=len(active - {row.schedule_id for row in rows}),
        quarantined=len(tables.errors),
        due=len(due),
        oldest_due_ms=min(due, default=None),
    )
