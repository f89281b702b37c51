"""Schedules that keep failing, in memory: paused by their own policy."""

from __future__ import annotations

import msgspec

from duly.jobs import JobState
from duly.ledger import BROKEN_OFF, Occurrence, OccurrenceState
from duly.schedules import Schedule, ScheduleId
from duly.stores.memory import ledger, schedules
from duly.stores.memory.hand_over import Step
from duly.stores.memory.tables import Tables, document_key, schedule_key

_RAN = frozenset({OccurrenceState.SUCCEEDED, OccurrenceState.FAILED})


def pause_failing(step: Step, schedule_id: ScheduleId) -> Schedule | None:
    """Pause a schedule whose last runs all failed, as many as its policy says; else None."""
    schedule = schedules.find(step.tables, schedule_id)
    if schedule is None or not schedule.definition.enabled:
        return None
    most = schedule.definition.policies.pause_after_failures
    if most is None or not _all_failed(step.tables, schedule_id, most):
        return None
    note = f"paused after {most} failures in a row"
    definition = msgspec.structs.replace(schedule.definition, enabled=False, note=note)
    key = schedule_key(schedule)
    stored = step.tables.documents[document_key(key)]
    return schedules.revise(step, key, stored, definition, "duly").schedule


def _all_failed(tables: Tables, schedule_id: ScheduleId, most: int) -> bool:
    """Whether so many runs ended since it was resumed last, and the newest all failed."""
    events = [each for each in tables.events if each.schedule_id == schedule_id]
    resumed_at_ms = max((each.at_ms for each in events if each.kind == "resumed"), default=0)
    rows = [entry.occurrence for entry in ledger.entries(tables, schedule_id)]
    rows = [row for row in rows if not _was_broken_off(tables, row)]
    ended = sorted(
        (row.ended_at_ms, row.nominal_ms, row.state)
        for row in rows
        if row.state in _RAN and row.ended_at_ms is not None
    )[-most:]
    return len(ended) == most and all(
        at_ms > resumed_at_ms and state is OccurrenceState.FAILED for at_ms, _, state in ended
    )


def _was_broken_off(tables: Tables, row: Occurrence) -> bool:
    """Whether its job was taken away, so that nobody knows how it would have ended."""
    # The reason of what was asked for by hand says that; its job alone knows how it ended.
    stored = None if row.job_id is None else tables.jobs.get(row.job_id)
    is_cancelled = stored is not None and stored.job.state is JobState.CANCELLED
    return row.state is OccurrenceState.FAILED and (row.reason in BROKEN_OFF or is_cancelled)
