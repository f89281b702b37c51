"""Hand-over by HTTP in memory: what an endpoint makes of a dispatch."""

from __future__ import annotations

from dataclasses import replace as change

from msgspec.structs import replace

from duly.dispatch_store import Duplicate, Fire, FireAnswer, Fired, Overlapped
from duly.jobs import JobId, JobState, NewJob
from duly.ledger import Occurrence, OccurrenceState
from duly.runs import left_of
from duly.schedules import Schedule, ScheduleId
from duly.stores.checks import ends_with, refuse_fire
from duly.stores.memory import job_rows, ledger, turns
from duly.stores.memory.schedules import find
from duly.stores.memory.tables import Tables, schedule_key

_S = OccurrenceState
_FREE = ledger.FREE | {_S.DISPATCHING}
"""States of a time that an endpoint may fire."""


def fire(tables: Tables, now_ms: int, request: Fire) -> FireAnswer:
    """Make the job of a dispatch, unless it was made before, overlaps or is refused."""
    job = request.job
    assert job.schedule_id is not None
    assert job.nominal_ms is not None
    if job.id in tables.jobs:
        return Fired(job.id)
    held = job_rows.held_key(tables, now_ms, job)
    if held is not None:
        return Duplicate(held.job_id)
    entry = ledger.entry_at(tables, ScheduleId(job.schedule_id), job.nominal_ms)
    earlier = None if entry is None else entry.occurrence
    if earlier is not None and earlier.state not in _FREE:
        return Duplicate(earlier.job_id if earlier.nominal_ms == job.nominal_ms else None)
    schedule = find(tables, ScheduleId(job.schedule_id))
    is_open = earlier is not None and earlier.state is _S.DISPATCHING
    refused = refuse_fire(request, schedule, is_open=is_open)
    if refused is not None:
        return refused
    job = replace(job, run_at_ms=now_ms if job.run_at_ms is None else job.run_at_ms)
    occurrence = _fired(request, job, earlier)
    answer = _make(tables, now_ms, job, occurrence)
    if schedule is not None:
        # What a tick holds was charged when the tick planned it.
        is_last = not is_open and charge_one(tables, schedule)
        if is_last or ends_with(schedule, job.nominal_ms):
            tables.drop_row(schedule_key(schedule))
            tables.end_schedule(schedule.id, "finished", now_ms)
    return answer


def charge_one(tables: Tables, schedule: Schedule) -> bool:
    """Charge one run to a schedule outside the plan of its row; whether it was the last."""
    left = left_of(schedule)
    if left is None:
        return False
    tables.count_runs(schedule, (schedule.runs_had or 0) + 1)
    key = schedule_key(schedule)
    row = tables.rows.get(key)
    if row is not None and row.schedule_id == schedule.id:
        tables.rows[key] = change(row, runs_left=left - 1, version=row.version + 1)
    return left == 1


def _fired(request: Fire, job: NewJob, earlier: Occurrence | None) -> Occurrence:
    """A planned row; what is known of the time stays."""
    assert job.schedule_id is not None
    assert job.nominal_ms is not None
    was_open = earlier is not None and earlier.state is _S.DISPATCHING
    return Occurrence(
        schedule_id=ScheduleId(job.schedule_id),
        nominal_ms=job.nominal_ms,
        until_ms=job.nominal_ms,
        count=1,
        run_at_ms=job.nominal_ms if earlier is None else earlier.run_at_ms,
        state=_S.PLANNED,
        flow=request.flow,
        scope=request.scope,
        name=request.name,
        job_id=job.id,
        reason=earlier.reason if earlier is not None and was_open else None,
    )


def _make(tables: Tables, now_ms: int, job: NewJob, occurrence: Occurrence) -> FireAnswer:
    is_due = job.run_at_ms is not None and job.run_at_ms <= now_ms
    decided = turns.settle(tables, now_ms, [job] if is_due else [], occurrence.run_at_ms)
    tables.posts.pop((occurrence.schedule_id, occurrence.nominal_ms), None)
    why = decided.skipped.get(job.id)
    if why is not None:
        skipped = replace(occurrence, state=_S.SKIPPED, reason=why, job_id=None, ended_at_ms=now_ms)
        ledger.put(tables, skipped)
        assert decided.holder is not None
        return Overlapped(why, decided.holder)
    ledger.put(tables, occurrence)
    job_rows.insert_one(tables, now_ms, replace(job, in_line=job.id in decided.in_line))
    _begin(tables, now_ms, job.id, occurrence)
    return Fired(job.id)


def _begin(tables: Tables, now_ms: int, job_id: JobId, occurrence: Occurrence) -> None:
    """A job that is queued has fired its occurrence; one that waits has not yet."""
    if tables.jobs[job_id].job.state is JobState.QUEUED:
        ledger.put(tables, replace(occurrence, state=_S.FIRED, fired_at_ms=now_ms))
