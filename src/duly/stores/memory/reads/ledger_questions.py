"""Ledger queries of the memory store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from duly.model.jobs import JobState
from duly.model.ledger import (
    DECIDED,
    LOST,
    MIN_LOST,
    PAUSED_OUTCOME,
    RECENT_TIMES,
    Occurrence,
    OccurrenceState,
    outcome_of,
)
from duly.model.ledger_counts import (
    MAX_LATENESS,
    MAX_SUMMARY,
    MISSES_LOOK,
    MISSES_MS,
    Lateness,
    LedgerCount,
    LedgerSummary,
    MissingSchedule,
    OccurrenceCounts,
    OutcomeCount,
)
from duly.model.plans import PAUSED, RUN_NOW
from duly.model.schedules import ScheduleId
from duly.rules.checks import check_limit, check_window
from duly.rules.ledger_misses import ROWS_LOOK, missing_of
from duly.stores.memory.tables import Tables


def covering(tables: Tables, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
    """Return the row of a nominal time, else the range that includes it."""
    found = [each for each in _of(tables, schedule_id) if each.covers(nominal_ms)]
    return max(found, key=lambda each: each.nominal_ms, default=None)


def summary(tables: Tables, schedule_id: ScheduleId, from_ms: int, to_ms: int) -> LedgerSummary:
    """Count the outcomes in a window; above MAX_SUMMARY rows, only the newest ones."""
    check_window(from_ms, to_ms)
    rows = sorted(_of(tables, schedule_id), key=lambda each: each.nominal_ms, reverse=True)
    inside = [each for each in rows if from_ms <= each.nominal_ms < to_ms]
    if len(inside) > MAX_SUMMARY:
        from_ms = inside[MAX_SUMMARY].nominal_ms + 1
        inside = inside[:MAX_SUMMARY]
    counted: Counter[tuple[str, str]] = Counter()
    for each in inside:
        if each.until_ms < to_ms:
            why = each.reason if each.reason in (RUN_NOW, PAUSED) else None
            counted[each.state, why or ""] += each.count
    late = [_lateness(each) for each in inside if each.fired_at_ms is not None]
    return LedgerSummary(
        from_ms,
        tuple(
            LedgerCount(OccurrenceState(state), why or None, times)
            for (state, why), times in sorted(counted.items())
        ),
        tuple(each for each in rows[::-1] if _crosses(each, from_ms, to_ms)),
        tuple(late[:MAX_LATENESS]),
    )


def count_occurrences(tables: Tables) -> OccurrenceCounts:
    """Count the nominal times of the whole ledger by flow and outcome."""
    counts: Counter[tuple[str, str]] = Counter()
    for entry in tables.ledger.values():
        row = entry.occurrence
        counts[row.flow, outcome_of(row.state, row.reason)] += row.count
    return OccurrenceCounts(
        [OutcomeCount(*key, times) for key, times in sorted(counts.items()) if times]
    )


def find_missing(tables: Tables, now_ms: int, limit: int) -> list[MissingSchedule]:
    """Return schedules with a next time that keep missing or skipping runs, by id."""
    check_limit(limit)
    rows = [entry.occurrence for entry in tables.ledger.values()]
    lost = [each for each in rows if each.state in LOST and each.until_ms > now_ms - MISSES_MS]
    newest = sorted(lost, key=lambda each: each.until_ms, reverse=True)[:MISSES_LOOK]
    counted = Counter(each.schedule_id for each in newest if each.reason != PAUSED_OUTCOME)
    often = [(-count, each) for each, count in counted.items() if count >= MIN_LOST]
    indexed = {row.schedule_id for row in tables.rows.values()}
    found = (
        _missing(rows, schedule_id)
        for schedule_id in sorted(each for _, each in sorted(often)[:limit])
        if schedule_id in indexed
    )
    return [each for each in found if each is not None]


def _missing(rows: Sequence[Occurrence], schedule_id: ScheduleId) -> MissingSchedule | None:
    mine = [each for each in rows if each.schedule_id == schedule_id]
    mine = sorted(mine, key=lambda each: each.nominal_ms, reverse=True)[:ROWS_LOOK]
    decided = [each for each in mine if each.state in DECIDED and each.reason != PAUSED_OUTCOME]
    states = [each.state for each in decided[:RECENT_TIMES]]
    return missing_of(schedule_id, (mine[0].flow, mine[0].scope, mine[0].name), states)


def recent_lateness(tables: Tables, limit: int) -> list[Lateness]:
    """Return how late scheduled jobs began, among the jobs that ended last, newest first."""
    check_limit(limit, MAX_LATENESS)
    found: list[Lateness] = []
    rows = {entry.occurrence.job_id: entry.occurrence for entry in tables.ledger.values()}
    for state in (JobState.SUCCEEDED, JobState.DEAD):
        jobs = [stored.job for stored in tables.jobs.values() if stored.job.state == state]
        jobs.sort(key=lambda job: job.finished_at_ms or 0, reverse=True)
        made = [rows[job.id] for job in jobs[:limit] if job.id in rows]
        found += [_lateness(each) for each in made if each.fired_at_ms is not None]
    return sorted(found, reverse=True)[:limit]


def _of(tables: Tables, schedule_id: ScheduleId) -> list[Occurrence]:
    return [entry.occurrence for (owner, _), entry in tables.ledger.items() if owner == schedule_id]


def _crosses(row: Occurrence, from_ms: int, to_ms: int) -> bool:
    reaches_in = row.is_range and row.nominal_ms < to_ms and row.until_ms >= from_ms
    return reaches_in and (row.nominal_ms < from_ms or row.until_ms >= to_ms)


def _lateness(row: Occurrence) -> Lateness:
    fired_at_ms = row.fired_at_ms or 0
    return Lateness(fired_at_ms, fired_at_ms - row.run_at_ms)
