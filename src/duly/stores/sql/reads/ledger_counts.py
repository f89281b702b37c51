"""Counts of the ledger by flow and outcome, and the schedules that keep missing their times.

The triggers of migration 14 append rows to `ledger_counts`, or add to its rows on SQLite, which has
one writer at a time. Every ledger write is counted in the same transaction.
"""

from __future__ import annotations

from duly.model.ledger import DECIDED, LOST, MIN_LOST, PAUSED_OUTCOME, RECENT_TIMES, OccurrenceState
from duly.model.ledger_counts import (
    MAX_CHANGES,
    MISSES_LOOK,
    MISSES_MS,
    MissingSchedule,
    OccurrenceCounts,
    OutcomeCount,
)
from duly.model.schedules import ScheduleId
from duly.rules.checks import check_limit
from duly.rules.ledger_misses import ROWS_LOOK, missing_of
from duly.stores.sql.bulk import delete_found
from duly.stores.sql.db import Db

MIN_SAVED = 100
"""Minimum number of rows saved that makes folding worthwhile."""
_LOST = ", ".join(f"'{state}'" for state in sorted(LOST))
_DECIDED = ", ".join(f"'{state}'" for state in sorted(DECIDED))
_OLDEST = "SELECT flow, outcome, times FROM {p}ledger_counts ORDER BY seq LIMIT :look"


def count_occurrences(db: Db) -> OccurrenceCounts:
    """Count the times of the whole ledger by flow and outcome."""
    rows = db.run(
        "SELECT flow, outcome, SUM(times) AS times, count(*) AS looked_at "
        f"FROM ({_OLDEST}) c GROUP BY flow, outcome ORDER BY flow, outcome",
        look=MAX_CHANGES,
    ).all()
    counts = [OutcomeCount(row.flow, row.outcome, int(row.times)) for row in rows if row.times]
    return OccurrenceCounts(counts, sum(row.looked_at for row in rows) < MAX_CHANGES)


def fold_counts(db: Db, limit: int = 10_000) -> int:
    """Merge rows with the same flow and outcome, oldest first; return the number of rows saved."""
    check_limit(limit, MAX_CHANGES)
    found = db.run(f"SELECT count(*) FROM ({_OLDEST}) c GROUP BY flow, outcome", look=limit)
    rows = list(found.scalars())
    if sum(rows) - len(rows) < MIN_SAVED:
        return 0
    folded = delete_found(
        db,
        "ledger_counts",
        ("seq",),
        "SELECT seq FROM {p}ledger_counts ORDER BY seq LIMIT :look {skip}",
        "flow, outcome, times",
        look=limit,
    )
    sums: dict[tuple[str, str], int] = {}
    for row in folded:
        key = row.flow, row.outcome
        sums[key] = sums.get(key, 0) + row.times
    kept = [
        {"flow": flow, "outcome": outcome, "times": times}
        for (flow, outcome), times in sorted(sums.items())
        if times
    ]
    if kept:
        db.connection.execute(db.tables.ledger_counts.insert(), kept)
    return len(folded) - len(kept)


def find_missing(db: Db, limit: int = 50) -> list[MissingSchedule]:
    """Return schedules with a next time that keep missing or skipping, by id."""
    check_limit(limit)
    candidates = db.run(
        "SELECT r.schedule_id FROM (SELECT schedule_id, reason FROM {p}occurrences "
        f"WHERE state IN ({_LOST}) AND until_ms > {{now}} - :reach_ms "
        "ORDER BY until_ms DESC LIMIT :look) r "
        "WHERE COALESCE(r.reason, '') <> :paused GROUP BY r.schedule_id "
        "HAVING count(*) >= :least ORDER BY count(*) DESC, r.schedule_id LIMIT :limit",
        reach_ms=MISSES_MS,
        look=MISSES_LOOK,
        paused=PAUSED_OUTCOME,
        least=MIN_LOST,
        limit=limit,
    ).scalars()
    found = (_missing(db, ScheduleId(each)) for each in sorted(candidates))
    return [each for each in found if each is not None]


def _missing(db: Db, schedule_id: ScheduleId) -> MissingSchedule | None:
    """Return the schedule if it has a next time and most of its last times did not run."""
    rows = db.run(
        "SELECT o.flow, o.scope, o.name, o.state FROM (SELECT * FROM {p}occurrences "
        "WHERE schedule_id = :id ORDER BY nominal_ms DESC LIMIT :look) o "
        f"WHERE o.state IN ({_DECIDED}) AND COALESCE(o.reason, '') <> :paused "
        "AND EXISTS (SELECT 1 FROM {p}schedule_rules r WHERE r.schedule_id = :id) "
        "ORDER BY o.nominal_ms DESC LIMIT :recent",
        id=schedule_id,
        look=ROWS_LOOK,
        paused=PAUSED_OUTCOME,
        recent=RECENT_TIMES,
    ).all()
    if not rows:
        return None
    states = [OccurrenceState(row.state) for row in rows]
    return missing_of(schedule_id, (rows[0].flow, rows[0].scope, rows[0].name), states)
