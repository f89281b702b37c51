"""The ledger: one row per occurrence, and its state changes as its job moves.

A transaction that writes rows for a schedule's own nominal times holds the schedule's index row,
or its definition if it has no row. A transaction that moves a job holds the job, which also
guards its occurrence.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.engine.kinds import LEDGER, OCCURRENCE, StoredOccurrence
from duly.engine.transaction import Tx
from duly.model.events import AttemptStatus
from duly.model.jobs import Job, JobState
from duly.model.ledger import BROKEN_OFF, Occurrence, OccurrenceState, follow
from duly.model.plans import BACKFILL, RUN_NOW
from duly.model.schedules import ScheduleId
from duly.rules.planning import PlannedOccurrence
from duly.rules.spans import Row, free_of

FREE = frozenset({OccurrenceState.WITHDRAWN, OccurrenceState.QUARANTINED})
"""States of a nominal time that may be planned again."""
EXTRAS = frozenset({RUN_NOW, BACKFILL})
"""Reasons of manually requested occurrences; later state changes keep them."""
_ENDS = frozenset(
    {
        OccurrenceState.SUCCEEDED,
        OccurrenceState.FAILED,
        OccurrenceState.SKIPPED,
        OccurrenceState.DENIED,
    }
)


def is_extra(item: StoredOccurrence) -> bool:
    """Return whether the row is a `run_now`, whose time is not one of the schedule's own."""
    return (item.claim_id or "").startswith(f"{RUN_NOW}:")


def is_taken(item: StoredOccurrence) -> bool:
    """Return whether the nominal times of a row must not be planned again."""
    return item.occurrence.state not in FREE


def covering(
    tx: Tx, schedule_id: ScheduleId, nominal_ms: int, *, hold: bool = True
) -> StoredOccurrence | None:
    """Return the row that covers a nominal time: its own row, or a range that includes it."""
    item = tx.first(LEDGER, schedule_id, upto=(nominal_ms,), is_reverse=True, hold=hold)
    return item if item is not None and item.occurrence.covers(nominal_ms) else None


def rows_between(
    tx: Tx, schedule_id: ScheduleId, first_ms: int, last_ms: int
) -> list[StoredOccurrence]:
    """Return the rows of a schedule that cover any time from first to last (inclusive), in order.

    Nothing is held: moving a job never frees a time, and a transaction that frees one holds the
    guard of the ledger.
    """
    earlier = covering(tx, schedule_id, first_ms - 1, hold=False)
    found = [] if earlier is None else [earlier]
    found += tx.all_members(LEDGER, schedule_id, since=(first_ms,), upto=(last_ms,))
    return [each for each in found if each.occurrence.until_ms >= first_ms]


def free_ones(
    tx: Tx, trigger: str, occurrences: Sequence[PlannedOccurrence]
) -> list[PlannedOccurrence]:
    """Return the occurrences of one schedule that have no ledger row, or only a free one.

    Ranges are reduced to their uncovered parts. Nothing is held.
    """
    if not occurrences:
        return []
    first_ms = min(each.nominal_ms for each in occurrences)
    last_ms = max(each.until_ms for each in occurrences)
    standing = rows_between(tx, occurrences[0].schedule_id, first_ms, last_ms)
    taken = [
        Row(item.occurrence.nominal_ms, item.occurrence.until_ms, is_taken(item))
        for item in standing
    ]
    return free_of(trigger, occurrences, taken)


def write(tx: Tx, item: StoredOccurrence) -> None:
    """Write a row; a range replaces the free rows that it covers."""
    occurrence = item.occurrence
    schedule_id = occurrence.schedule_id
    if occurrence.is_range:
        since, upto = (occurrence.nominal_ms,), (occurrence.until_ms,)
        covered = tx.all_members(LEDGER, schedule_id, since=since, upto=upto)
        free = [OCCURRENCE.key(each) for each in covered if not is_taken(each)]
        tx.get_many(OCCURRENCE, free)
        for key in free:
            tx.delete(OCCURRENCE, *key)
    tx.get(OCCURRENCE, schedule_id, occurrence.nominal_ms)
    tx.put(OCCURRENCE, item)


def of_job(tx: Tx, job: Job) -> StoredOccurrence | None:
    """Return the occurrence that a job was made for."""
    if job.schedule_id is None or job.nominal_ms is None:
        return None
    item = tx.get(OCCURRENCE, job.schedule_id, job.nominal_ms)
    return None if item is None or item.occurrence.job_id != job.id else item


def hold_of_jobs(tx: Tx, jobs: Sequence[Job]) -> None:
    """Hold the occurrences of jobs that are already held, in one read."""
    tx.get_many(
        OCCURRENCE,
        [
            (job.schedule_id, job.nominal_ms)
            for job in jobs
            if job.schedule_id is not None and job.nominal_ms is not None
        ],
    )


def planned_of(tx: Tx, job: Job) -> Occurrence | None:
    """Return a job's occurrence if it is still planned; None: it has begun, or there is none."""
    item = of_job(tx, job)
    if item is None or item.occurrence.state is not OccurrenceState.PLANNED:
        return None
    return item.occurrence


def end_planned(
    tx: Tx, job: Job, state: OccurrenceState, reason: str, ended_at_ms: int | None = None
) -> Occurrence | None:
    """Close the occurrence of a job that will not run; None: it is not planned any more."""
    item = of_job(tx, job)
    if item is None or item.occurrence.state is not OccurrenceState.PLANNED:
        return None
    ended = replace(item.occurrence, state=state, reason=reason, ended_at_ms=ended_at_ms)
    tx.put(OCCURRENCE, replace(item, occurrence=ended))
    return ended


def follow_job(tx: Tx, job: Job, state: JobState, ended_as: AttemptStatus | None = None) -> None:
    """Update the occurrence of a job, if it has one, to match the job's new state."""
    item = of_job(tx, job)
    if item is None:
        return
    earlier = item.occurrence
    occurrence = replace(earlier, state=follow(earlier.state, state, ended_as))
    if state is JobState.PROCESSING and earlier.fired_at_ms is None:
        occurrence = replace(occurrence, fired_at_ms=tx.now_ms)
    if occurrence.state is not earlier.state:
        ended_at_ms = tx.now_ms if occurrence.state in _ENDS else None
        occurrence = replace(occurrence, ended_at_ms=ended_at_ms)
        is_broken_off = state in BROKEN_OFF and occurrence.state is OccurrenceState.FAILED
        if is_broken_off and occurrence.reason not in EXTRAS:
            occurrence = replace(occurrence, reason=state.value)
    if occurrence != earlier:
        tx.put(OCCURRENCE, replace(item, occurrence=occurrence))
