"""Pausing of schedules that keep failing, according to their own policy."""

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
"""The limits were checked when the schedule was stored; pausing it needs no more room."""
_MAX_LOOKED_AT = 1_000
"""Ended runs per read."""


def pause_failing(tx: Tx, schedule_id: ScheduleId) -> Schedule | None:
    """Pause a schedule if its last `pause_after_failures` runs all failed; else return None."""
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
    """Return whether the newest `most` runs since the last resumption all failed.

    Cancelled runs are ignored.
    """
    since_ms = _resumed_at_ms(tx, schedule_id) + 1
    failed, upto = 0, None
    while failed < most:
        limit = min(most - failed + 1, _MAX_LOOKED_AT)
        found = _newest_runs(tx, schedule_id, since_ms, upto, limit)
        for item in found:
            if upto == _sort(item):
                continue  # the last run of the previous page
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
    """Return runs by end time, newest first; the jobs that `_was_broken_off` needs are read."""
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
    """Return the job of a manually requested run that failed."""
    own = item.occurrence
    is_extra = own.state is OccurrenceState.FAILED and own.reason in ledger.EXTRAS
    return own.job_id if is_extra else None


def _was_broken_off(tx: Tx, item: StoredOccurrence) -> bool:
    """Return whether a failed run was cut short, such as by cancellation, so it is no failure."""
    if item.occurrence.reason in BROKEN_OFF:
        return True
    # A manually requested run keeps its own reason, so only its job shows how it ended.
    job_id = _asked_for(item)
    found = None if job_id is None else tx.peek(JOB, job_id)
    return found is not None and found.job.state is JobState.CANCELLED
