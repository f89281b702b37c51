"""The ledger in memory: what became of every occurrence, and how it follows its job."""

from __future__ import annotations

from msgspec.structs import replace

from duly.events import AttemptStatus
from duly.jobs import Job, JobState
from duly.ledger import Occurrence, OccurrenceState, follow
from duly.occurrences import Claimed
from duly.schedules import ScheduleId
from duly.stores.checks import check_limit
from duly.stores.memory.tables import LedgerEntry, Tables

FREE = frozenset({OccurrenceState.WITHDRAWN, OccurrenceState.QUARANTINED})
"""States of a time that is still to be planned."""
_ENDS = frozenset(
    {
        OccurrenceState.SUCCEEDED,
        OccurrenceState.FAILED,
        OccurrenceState.SKIPPED,
        OccurrenceState.DENIED,
    }
)


def is_taken(tables: Tables, schedule_id: ScheduleId, nominal_ms: int) -> bool:
    """Whether a time has its row, and no planner may make another."""
    entry = tables.ledger.get((schedule_id, nominal_ms))
    return entry is not None and entry.occurrence.state not in FREE


def put(tables: Tables, occurrence: Occurrence) -> None:
    """Write a row, in place of one whose time was free."""
    key = (occurrence.schedule_id, occurrence.nominal_ms)
    tables.ledger[key] = LedgerEntry(occurrence)


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
    tables.ledger[key] = LedgerEntry(occurrence, entry.claimed, entry.claim_id)


def page(
    tables: Tables, schedule_id: ScheduleId, before_ms: int | None, limit: int
) -> list[Occurrence]:
    """Rows of one schedule, newest first."""
    check_limit(limit)
    rows = [
        entry.occurrence
        for (owner, nominal_ms), entry in tables.ledger.items()
        if owner == schedule_id and (before_ms is None or nominal_ms < before_ms)
    ]
    return sorted(rows, key=lambda row: row.nominal_ms, reverse=True)[:limit]
