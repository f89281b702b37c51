"""Upkeep in memory: the index against the documents and the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duly.occurrences import IndexRow, index_row
from duly.runs import known_runs, left_of
from duly.schedules import Schedule, first_after_ms, is_indexed
from duly.store import IndexHealth, ReconcileReport
from duly.stores.checks import with_times_of
from duly.stores.memory import ledger
from duly.stores.memory.index import due_by_hand_over, in_order
from duly.stores.memory.ledger import FREE, entries
from duly.stores.memory.tables import Tables, schedule_key


def reconcile(tables: Tables, now_ms: int, flows: Sequence[str] | None) -> ReconcileReport:
    """Make every row say what its schedule says."""
    schedules = [each for each in tables.schedules() if flows is None or each.flow in flows]
    kept = {schedule_key(each) for each in schedules if _has_row(each)}
    idle = {schedule_key(each) for each in schedules} - kept
    declared = {each.flow for each in schedules} if flows is None else set(flows)
    lost = [key for key in tables.rows if key.flow in declared and key not in kept | idle]
    unwanted = [key for key in tables.rows if key in idle]
    unwanted += [key for key in lost if _is_orphan(tables, tables.rows[key].schedule_id)]
    for key in unwanted:
        tables.drop_row(key)
    report = ReconcileReport(checked=len(schedules), removed=len(unwanted))
    for schedule in schedules:
        if schedule.state == "active" and is_indexed(schedule.definition):
            report = _reconcile_one(tables, now_ms, schedule, report)
    return report


def _is_orphan(tables: Tables, schedule_id: str) -> bool:
    """Return whether a row without a schedule is what is left of one, and not a caller's own.

    A schedule that was stored has events. Deleting it removes its row as well, so a row whose
    schedule was deleted was upserted afterwards, by a caller who took over the id.
    """
    kinds = {event.kind for event in tables.events if event.schedule_id == schedule_id}
    return bool(kinds) and "deleted" not in kinds


def _has_row(schedule: Schedule) -> bool:
    if schedule.state == "active":
        return is_indexed(schedule.definition)
    return schedule.state == "quarantined"


def _reconcile_one(
    tables: Tables, now_ms: int, schedule: Schedule, report: ReconcileReport
) -> ReconcileReport:
    key = schedule_key(schedule)
    row = tables.rows.get(key)
    own = row if row is not None and row.schedule_id == schedule.id else None
    had = known_runs(schedule, None if own is None else own.runs_left)
    schedule = tables.count_runs(schedule, had)
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
    after_ms = first_after_ms(schedule.definition, schedule.updated_at_ms)
    if known:
        # What the rule says of the time before it held was never a time of this schedule.
        last_ms = max(each.until_ms for each in known)
        after_ms = max(last_ms + offset_ms, _retimed_ms(tables, schedule))
    left = left_of(schedule)
    return None if left == 0 else index_row(schedule, after_ms, runs_left=left)


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
    schedules = [each for each in tables.schedules() if each.state == "active"]
    active = {each.id for each in schedules if is_indexed(each.definition)}
    rows = in_order(tables)
    waiting = due_by_hand_over([row for row in rows if row.run_at_ms <= now_ms])
    planned, posts = waiting.get("jobs"), waiting.get("http")
    return IndexHealth(
        active=len(active),
        rows=len(rows),
        missing=len(active - {row.schedule_id for row in rows}),
        quarantined=len(tables.errors),
        due=planned.rows if planned else 0,
        oldest_due_ms=planned.oldest_ms if planned else None,
        posts_due=posts.rows if posts else 0,
        oldest_post_ms=posts.oldest_ms if posts else None,
        external=len(schedules) - len(active),
    )
