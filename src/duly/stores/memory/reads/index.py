"""Reads of index rows and index health in the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.index import IndexHealth, Quarantined
from duly.model.index_rows import IndexRow
from duly.model.schedules import HandOver, is_indexed
from duly.model.summaries import DueRows
from duly.rules.checks import check_limit
from duly.stores.memory.tables import Tables


def in_order(tables: Tables) -> list[IndexRow]:
    """Return the rows that have a next time in claim order; ties go to the row stored first."""
    rows = (row for key, row in tables.rows.items() if key not in tables.errors)
    return sorted(rows, key=lambda row: (row.run_at_ms, -row.priority))


def due_by_hand_over(rows: Sequence[IndexRow]) -> dict[HandOver, DueRows]:
    """Summarise ordered due rows by hand-over, without `external`, which no loop takes."""
    times: dict[HandOver, list[int]] = {}
    for row in rows:
        if row.hand_over != "external":
            times.setdefault(row.hand_over, []).append(row.run_at_ms)
    return {name: DueRows(len(found), found[0]) for name, found in times.items()}


def rows_page(tables: Tables, flow: str | None, until_ms: int | None, limit: int) -> list[IndexRow]:
    """Return up to `limit` rows in claim order."""
    check_limit(limit)
    rows = [
        row
        for row in in_order(tables)
        if flow in (None, row.flow) and (until_ms is None or row.run_at_ms <= until_ms)
    ]
    return rows[:limit]


def quarantined_page(tables: Tables, limit: int) -> list[Quarantined]:
    """Return the rows that cannot be evaluated, by key."""
    check_limit(limit)
    keys = sorted(tables.errors, key=lambda key: (key.flow, key.scope, key.name))
    return [
        Quarantined(
            key, tables.rows[key].schedule_id, tables.rows[key].nominal_ms, tables.errors[key]
        )
        for key in keys[:limit]
    ]


def health(tables: Tables, now_ms: int) -> IndexHealth:
    """Compare stored schedules with index rows; return the counts."""
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
