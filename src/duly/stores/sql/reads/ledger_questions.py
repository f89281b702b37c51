"""Queries of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.model.jobs import JobId, JobState
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.ledger_counts import MAX_LATENESS, MAX_SUMMARY, Lateness, LedgerCount, LedgerSummary
from duly.model.schedules import ScheduleId
from duly.rules.checks import check_limit, check_window
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db
from duly.stores.sql.rows.ledger import occurrence_of
from duly.stores.sql.rows.markers import concerned

_WINDOW = "schedule_id = :id AND nominal_ms >= :from_ms AND nominal_ms < :to_ms"


def occurrence_at(db: Db, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
    """Return the row of a time, else the row of the range of times that contains it, or None."""
    asked = {"id": schedule_id, "ms": nominal_ms}
    row = db.run(
        "SELECT * FROM {p}occurrences WHERE schedule_id = :id AND nominal_ms = :ms", **asked
    ).first()
    if row is None:
        row = db.run(
            "SELECT * FROM {p}occurrences WHERE schedule_id = :id AND nominal_ms < :ms "
            "AND until_ms > nominal_ms AND until_ms >= :ms ORDER BY nominal_ms DESC LIMIT 1",
            **asked,
        ).first()
    return None if row is None else occurrence_of(row)


def occurrences_of_jobs(db: Db, job_ids: Sequence[JobId]) -> dict[JobId, Occurrence]:
    """Return the occurrences of jobs, by job id."""
    found: dict[JobId, Occurrence] = {}
    for chunk in chunks(job_ids):
        rows = db.run("SELECT * FROM {p}occurrences WHERE job_id IN :ids", ids=list(chunk))
        found |= {JobId(row.job_id): occurrence_of(row) for row in rows}
    return found


def ledger_summary(db: Db, schedule_id: ScheduleId, from_ms: int, to_ms: int) -> LedgerSummary:
    """Count the outcomes in a window, newest rows first, up to MAX_SUMMARY rows."""
    check_window(from_ms, to_ms)
    window: dict[str, Any] = {"id": schedule_id, "from_ms": from_ms, "to_ms": to_ms}
    cut = db.run(
        f"SELECT nominal_ms FROM {{p}}occurrences WHERE {_WINDOW} "
        "ORDER BY nominal_ms DESC LIMIT 1 OFFSET :most",
        most=MAX_SUMMARY,
        **window,
    ).scalar()
    if cut is not None:
        window["from_ms"] = int(cut) + 1
    return LedgerSummary(
        window["from_ms"], _counts(db, window), _edges(db, window), _lateness(db, window)
    )


def _counts(db: Db, window: dict[str, Any]) -> tuple[LedgerCount, ...]:
    rows = db.run(
        "SELECT state, CASE WHEN reason IN ('run_now', 'paused') THEN reason END AS why, "
        f"SUM(times) AS counted FROM {{p}}occurrences WHERE {_WINDOW} "
        "AND COALESCE(until_ms, nominal_ms) < :to_ms GROUP BY 1, 2",
        **window,
    )
    counts = [LedgerCount(OccurrenceState(row.state), row.why, int(row.counted)) for row in rows]
    return tuple(sorted(counts, key=lambda each: (each.state, each.reason or "")))


def _edges(db: Db, window: dict[str, Any]) -> tuple[Occurrence, ...]:
    rows = db.run(
        "SELECT * FROM {p}occurrences WHERE schedule_id = :id AND until_ms > nominal_ms "
        "AND nominal_ms < :to_ms AND until_ms >= :from_ms "
        "AND (nominal_ms < :from_ms OR until_ms >= :to_ms) ORDER BY nominal_ms LIMIT 10",
        **window,
    )
    return tuple(occurrence_of(row) for row in rows)


def _lateness(db: Db, window: dict[str, Any]) -> tuple[Lateness, ...]:
    rows = db.run(
        f"SELECT fired_at_ms, fired_at_ms - run_at_ms FROM {{p}}occurrences WHERE {_WINDOW} "
        "AND fired_at_ms IS NOT NULL ORDER BY nominal_ms DESC LIMIT :most",
        most=MAX_LATENESS,
        **window,
    )
    return tuple(Lateness._make(row) for row in rows)


def recent_lateness(db: Db, limit: int = 1_000) -> list[Lateness]:
    """Return the start delays of the scheduled jobs that ended last, newest first."""
    check_limit(limit, MAX_LATENESS)
    ended = " UNION ALL ".join(
        f"SELECT id FROM {concerned(state)} AS {state}"
        for state in (JobState.SUCCEEDED, JobState.DEAD)
    )
    rows = db.run(
        f"SELECT o.fired_at_ms, o.fired_at_ms - o.run_at_ms FROM ({ended}) AS j "
        "JOIN {p}occurrences o ON o.job_id = j.id AND o.job_id IS NOT NULL "
        "WHERE o.fired_at_ms IS NOT NULL",
        look=limit,
    )
    return sorted((Lateness._make(row) for row in rows), reverse=True)[:limit]
