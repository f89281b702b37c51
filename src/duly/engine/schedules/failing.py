"""Schedules that keep failing: paused by their own policy."""

from __future__ import annotations

from msgspec.structs import replace

from duly.engine.kinds import (
    ENDED_RUNS,
    JOB,
    OCCURRENCE,
    SCHEDULE_EVENTS,
    StoredOccurrence,
    schedule_key,
)
from duly.engine.schedules import ledger, schedules
from duly.engine.transaction import Key, Tx
from duly.model.jobs import JobId, JobState
from duly.model.ledger import BROKEN_OFF, OccurrenceState
from duly.model.schedule_writes import ScheduleWrite, ScheduleWritten
from duly.model.schedules import Limits, Schedule, ScheduleId

_NO_LIMITS = Limits(2**31 - 1, 1, 2**31 - 1)
"""Whoever stored a schedule was allowed to, and pausing it asks for nothing more."""
_MAX_LOOKED_AT = 1_000
"""Ended runs that one read looks at."""


def pause_failing(tx: Tx, schedule_id: ScheduleId) -> Schedule | None:
    """Pause a schedule whose last runs all failed, as many as its policy says; else None."""
    schedule = schedules.find_schedule(tx, schedule_id)
    if schedule is None or not schedule.definition.enabled:
        return None
    most = schedule.definition.policies.pause_after_failures
    if most is None or not _all_failed(tx, schedule_id, most):
        return None
    note = f"paused after {most} failures in a row"
    write = ScheduleWrite(
        schedule_key(schedule),
        schedule.id,
        replace(schedule.definition, enabled=False, note=note),
        limits=_NO_LIMITS,
        expected_version=schedule.version,
        by="duly",
    )
    (written,) = schedules.put_schedules(tx, [write])
    return written.schedule if isinstance(written, ScheduleWritten) else None


def _all_failed(tx: Tx, schedule_id: ScheduleId, most: int) -> bool:
    """Return whether so many runs ended since the last resumption, and the newest all failed."""
    since_ms = _resumed_at_ms(tx, schedule_id) + 1
    failed, upto = 0, None
    while failed < most:
        limit = min(most - failed + 1, _MAX_LOOKED_AT)
        found = _newest_runs(tx, schedule_id, since_ms, upto, limit)
        for item in found:
            if upto == _sort(item):
                continue  # the last one of the page before
            if item.occurrence.state is not OccurrenceState.FAILED:
                return False
            failed += not _was_broken_off(tx, item)
            if failed == most:
                return True
        if len(found) < limit:
            return False
        upto = _sort(found[-1])
    return True


def _resumed_at_ms(tx: Tx, schedule_id: ScheduleId) -> int:
    facts = tx.history(SCHEDULE_EVENTS, schedule_id)
    return max((each.at_ms for each in facts if each.kind == "resumed"), default=-1)


def _newest_runs(
    tx: Tx, schedule_id: ScheduleId, since_ms: int, upto: Key | None, limit: int
) -> list[StoredOccurrence]:
    """Return runs by when they ended, newest first, with their jobs read."""
    keys = tx.find(
        ENDED_RUNS, schedule_id, since=(since_ms,), upto=upto, limit=limit, is_reverse=True
    )
    found = tx.peek_many(OCCURRENCE, keys)
    runs = [found[key] for key in keys if key in found]
    tx.peek_many(JOB, [(job_id,) for item in runs if (job_id := _asked_for(item))])
    return runs


def _sort(item: StoredOccurrence) -> Key:
    place = ENDED_RUNS.place(item)
    assert place is not None
    return place.sort


def _asked_for(item: StoredOccurrence) -> JobId | None:
    """Return the job of a run that somebody asked for by hand and that failed."""
    own = item.occurrence
    is_extra = own.state is OccurrenceState.FAILED and own.reason in ledger.EXTRAS
    return own.job_id if is_extra else None


def _was_broken_off(tx: Tx, item: StoredOccurrence) -> bool:
    """Return whether its job was taken away, so that nobody knows how it would have ended."""
    if item.occurrence.reason in BROKEN_OFF:
        return True
    # The reason of what was asked for by hand says that; its job alone knows how it ended.
    job_id = _asked_for(item)
    found = None if job_id is None else tx.peek(JOB, job_id)
    return found is not None and found.job.state is JobState.CANCELLED
