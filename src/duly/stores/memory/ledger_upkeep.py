"""Retention in memory: occurrences and facts kept long enough."""

from __future__ import annotations

from duly.job_store import MAX_SWEEP
from duly.ledger import OPEN, Occurrence, OccurrenceState
from duly.schedules import ScheduleId
from duly.store import ScheduleEvent
from duly.stores.checks import check_limit
from duly.stores.memory.ledger import FREE, is_extra
from duly.stores.memory.tables import Tables
from duly.upkeep_store import LedgerPruned, LedgerRetention, check_cursor


def prune_ledger(
    tables: Tables, now_ms: int, retention: LedgerRetention, limit: int, cursor: str | None
) -> LedgerPruned:
    """One step; the next one looks again from the beginning."""
    check_limit(limit, MAX_SWEEP)
    check_cursor(cursor, ("again",))
    occurrences = _old_occurrences(tables, now_ms - retention.ledger_ms)
    events = _old_events(tables, now_ms - retention.events_ms)
    for key in occurrences[:limit]:
        del tables.ledger[key]
    gone = set(events[:limit])
    entries = [
        each.seq
        for each in tables.audit
        if retention.is_audit_over(each.action, each.at_ms, now_ms)
    ]
    tables.audit = [each for each in tables.audit if each.seq not in entries[:limit]]
    tables.events = [event for place, event in enumerate(tables.events) if place not in gone]
    is_over = max(len(occurrences), len(events), len(entries)) <= limit
    return LedgerPruned(
        len(occurrences[:limit]),
        len(gone),
        None if is_over else "again:",
        audit=len(entries[:limit]),
    )


def _old_occurrences(tables: Tables, edge_ms: int) -> list[tuple[ScheduleId, int]]:
    schedules = {each.id: each for each in tables.schedules()}
    rows = {row.schedule_id: row for row in tables.rows.values()}
    found = []
    for key, entry in sorted(tables.ledger.items(), key=lambda item: item[0]):
        occurrence = entry.occurrence
        if not _is_closed(occurrence) or _last_heard_ms(occurrence) >= edge_ms:
            continue
        schedule, row = schedules.get(occurrence.schedule_id), rows.get(occurrence.schedule_id)
        if row is not None and row.nominal_ms < edge_ms:
            continue  # the planner could make what comes after it again
        if (schedule or row) and not _has_newer(tables, occurrence):
            continue  # reconcile() goes on after it
        found.append(key)
    return found


def _is_closed(occurrence: Occurrence) -> bool:
    """Nothing will follow; what a claim took has no job that could close it."""
    is_claimed = occurrence.state is OccurrenceState.FIRED and occurrence.job_id is None
    return is_claimed or occurrence.state not in OPEN


def _last_heard_ms(occurrence: Occurrence) -> int:
    return max(occurrence.until_ms, occurrence.run_at_ms, occurrence.ended_at_ms or 0)


def _has_newer(tables: Tables, occurrence: Occurrence) -> bool:
    return any(
        owner == occurrence.schedule_id
        and nominal_ms > occurrence.nominal_ms
        and entry.occurrence.state not in FREE
        and not is_extra(entry)
        for (owner, nominal_ms), entry in tables.ledger.items()
    )


def _old_events(tables: Tables, edge_ms: int) -> list[int]:
    """Places of facts that are not the newest of their kind about a schedule that exists.

    One that changed the rule is not outlived by words alone: reconcile() asks when it was.
    """
    ids = {each.id for each in tables.schedules()}
    told = list(enumerate(tables.events))
    newest = {(event.schedule_id, event.kind): place for place, event in told}
    ruling = {(event.schedule_id, event.kind): place for place, event in told if _rules(event)}
    kept = {*newest.values(), *ruling.values()}
    return [
        place
        for place, event in told
        if event.at_ms < edge_ms and (event.schedule_id not in ids or place not in kept)
    ]


def _rules(event: ScheduleEvent) -> bool:
    return "trigger" in event.detail
