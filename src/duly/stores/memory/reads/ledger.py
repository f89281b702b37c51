"""Reads of one schedule's ledger in the memory store."""

from __future__ import annotations

from collections.abc import Collection

from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedules import ScheduleId
from duly.rules.checks import check_limit
from duly.stores.memory.tables import LedgerEntry, Tables


def _entries(tables: Tables, schedule_id: ScheduleId) -> list[LedgerEntry]:
    """Return the ledger entries of a schedule, by nominal time."""
    found = [entry for (owner, _), entry in tables.ledger.items() if owner == schedule_id]
    return sorted(found, key=lambda entry: entry.occurrence.nominal_ms)


def page(
    tables: Tables,
    schedule_id: ScheduleId,
    *,
    before_ms: int | None,
    since_ms: int | None,
    states: Collection[OccurrenceState] | None,
    limit: int,
) -> list[Occurrence]:
    """Return one page of a schedule's rows, newest first."""
    check_limit(limit)
    return [
        row
        for row in (entry.occurrence for entry in reversed(_entries(tables, schedule_id)))
        if (before_ms is None or row.nominal_ms < before_ms)
        and (since_ms is None or row.nominal_ms >= since_ms)
        and (states is None or row.state in states)
    ][:limit]
