"""The ledger in memory: what became of every occurrence, and how it follows its job."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from duly.events import AttemptStatus
from duly.jobs import Job, JobState
from duly.ledger import BROKEN_OFF, Occurrence, OccurrenceState, follow
from duly.occurrences import Claimed
from duly.plan_store import BACKFILL, RUN_NOW
from duly.schedules import ScheduleId
from duly.stores.checks import check_limit
from duly.stores.memory.tables import LedgerEntry, Tables
from duly.stores.spans import Row

FREE = frozenset({OccurrenceState.WITHDRAWN, OccurrenceState.QUARANTINED})
"""States of a time that is still to be planned."""
EXTRAS = frozenset({RUN_NOW, BACKFILL})
"""Reasons of what somebody asked for by hand; they stay, whatever becomes of it."""
_ENDS = frozenset(
    {
        OccurrenceState.SUCCEEDED,
        OccurrenceState.FAILED,
        OccurrenceState.SKIPPED,
        OccurrenceState.DENIED,
    }
)


def entries(tables: Tables, schedule_id: ScheduleId) -> list[LedgerEntry]:
    """What the ledger has of a schedule, by nominal time."""
    found = [entry for (owner, _), entry in tables.ledger.items() if owner == schedule_id]
    return sorted(found, key=lambda entry: entry.occurrence.nominal_ms)


def is_extra(entry: LedgerEntry) -> bool:
    """Whether somebody asked for it: it says nothing about the schedule's own times."""
    return (entry.claim_id or "").startswith(f"{RUN_NOW}:")


def entry_at(tables: Tables, schedule_id: ScheduleId, nominal_ms: int) -> LedgerEntry | None:
    """The row that covers a time, be it one of a run of times."""
    exact = tables.ledger.get((schedule_id, nominal_ms))
    if exact is not None:
        return exact
    found = (e for e in entries(tables, schedule_id) if e.occurrence.covers(nominal_ms))
    return next(found, None)


def rows(tables: Tables, schedule_id: ScheduleId) -> list[Row]:
    """Where the rows of a schedule stand."""
    found = (entry.occurrence for entry in entries(tables, schedule_id))
    return [Row(each.nominal_ms, each.until_ms, each.state not in FREE) for each in found]


def put(tables: Tables, occurrence: Occurrence, claim_id: str | None = None) -> None:
    """Write a row, in place of those whose times were free."""
    key = (occurrence.schedule_id, occurrence.nominal_ms)
    if occurrence.is_range:
        for entry in entries(tables, occurrence.schedule_id):
            row = entry.occurrence
            if row.state in FREE and occurrence.covers(row.nominal_ms):
                tables.ledger.pop((row.schedule_id, row.nominal_ms))
    tables.ledger[key] = LedgerEntry(occurrence, claim_id=claim_id)


def planned_of(tables: Tables, job: Job) -> Occurrence | None:
    """The occurrence of a job that has not begun; None: it has, or there is none."""
    if job.schedule_id is None or job.nominal_ms is None:
        return None
    entry = tables.ledger.get((ScheduleId(job.schedule_id), job.nominal_ms))
    if entry is None or entry.occurrence.job_id != job.id:
        return None
    return entry.occurrence if entry.occurrence.state is OccurrenceState.PLANNED else None


def end_planned(
    tables: Tables,
    job: Job,
    state: OccurrenceState,
    reason: str,
    ended_at_ms: int | None = None,
) -> Occurrence | None:
    """Say of a planned occurrence that its job will not run, and why; gives it."""
    earlier = planned_of(tables, job)
    if earlier is None:
        return None
    ended = replace(earlier, state=state, reason=reason, ended_at_ms=ended_at_ms)
    key = (ended.schedule_id, ended.nominal_ms)
    entry = tables.ledger[key]
    tables.ledger[key] = LedgerEntry(ended, entry.claimed, entry.claim_id)
    return ended


def put_claimed(tables: Tables, claimed: Claimed, claim_id: str) -> None:
    """Write what a claim with an id took: whoever claimed it fires it."""
    occurrence = Occurrence(
        schedule_id=claimed.schedule_id,
        nominal_ms=claimed.nominal_ms,
        until_ms=claimed.nominal_ms,
        count=1,
        run_at_ms=claimed.run_at_ms,
        state=OccurrenceState.FIRED,
        flow=claimed.flow,
        scope=claimed.scope,
        name=claimed.name,
    )
    key = (claimed.schedule_id, claimed.nominal_ms)
    tables.ledger[key] = LedgerEntry(occurrence, claimed, claim_id)


def follow_job(
    tables: Tables, now_ms: int, job: Job, state: JobState, ended_as: AttemptStatus | None = None
) -> None:
    """Take the occurrence of a job, if it has one, along with it."""
    if job.schedule_id is None or job.nominal_ms is None:
        return
    key = (ScheduleId(job.schedule_id), job.nominal_ms)
    entry = tables.ledger.get(key)
    if entry is None or entry.occurrence.job_id != job.id:
        return
    earlier = entry.occurrence
    occurrence = replace(earlier, state=follow(earlier.state, state, ended_as))
    if state == JobState.PROCESSING and earlier.fired_at_ms is None:
        occurrence = replace(occurrence, fired_at_ms=now_ms)
    if occurrence.state != earlier.state:
        ended_at_ms = now_ms if occurrence.state in _ENDS else None
        occurrence = replace(occurrence, ended_at_ms=ended_at_ms)
        is_broken_off = state in BROKEN_OFF and occurrence.state is OccurrenceState.FAILED
        if is_broken_off and occurrence.reason not in EXTRAS:
            occurrence = replace(occurrence, reason=state.value)
    tables.ledger[key] = LedgerEntry(occurrence, entry.claimed, entry.claim_id)


def page(
    tables: Tables,
    schedule_id: ScheduleId,
    *,
    before_ms: int | None,
    since_ms: int | None,
    states: Collection[OccurrenceState] | None,
    limit: int,
) -> list[Occurrence]:
    """Rows of one schedule, newest first."""
    check_limit(limit)
    return [
        row
        for row in (entry.occurrence for entry in reversed(entries(tables, schedule_id)))
        if (before_ms is None or row.nominal_ms < before_ms)
        and (since_ms is None or row.nominal_ms >= since_ms)
        and (states is None or row.state in states)
    ][:limit]
