"""Hand-over by HTTP: what an endpoint makes of a dispatch.

The row and the definition of the schedule are held first, so that no pause comes between. Then the
key decides, then the ledger, then the state of the schedule, then its running marker. An answer
other than a job takes no key.
"""

from __future__ import annotations

from msgspec.structs import replace

from duly.engine.jobs import jobs as job_cases
from duly.engine.kinds import JOB, OCCURRENCE, ROW, SCHEDULE, StoredOccurrence, StoredSchedule
from duly.engine.schedules import ledger, overlap
from duly.engine.schedules.rows import charge_one, counted, end_row
from duly.engine.transaction import Tx
from duly.model.dispatches import Duplicate, Fire, FireAnswer, Fired, Overlapped
from duly.model.jobs import JobId, JobState, NewJob
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedules import ScheduleId
from duly.rules.checks import ends_with, refuse_fire

_S = OccurrenceState
_FREE = ledger.FREE | {_S.DISPATCHING}
"""States of a time that an endpoint may fire."""


def fire(tx: Tx, request: Fire) -> FireAnswer:
    """Make the job of a dispatch, unless it was made before, overlaps or is refused."""
    job = request.job
    stored = _hold_schedule(tx, request)
    held = job_cases.held_key(tx, job)
    if tx.get(JOB, job.id) is not None:
        return Fired(job.id)
    if held is not None:
        return _made_before(job, held.job_id)
    earlier = _standing(tx, job)
    if earlier is not None and earlier.nominal_ms != job.nominal_ms:
        return Duplicate(None)  # a run of times that was swallowed
    if earlier is not None and earlier.state not in _FREE:
        return _made_before(job, earlier.job_id)
    schedule = None if stored is None else stored.schedule
    is_open = earlier is not None and earlier.state is _S.DISPATCHING
    refused = refuse_fire(request, schedule, is_open=is_open)
    if refused is not None:
        return refused
    job = replace(job, run_at_ms=tx.now_ms if job.run_at_ms is None else job.run_at_ms)
    answer = _make(tx, job, _planned(request, job, earlier))
    if stored is not None:
        # What a tick holds was charged when the tick planned it.
        is_last = not is_open and charge_one(tx, stored)
        if is_last or ends_with(stored.schedule, job.nominal_ms):
            end_row(tx, stored.schedule)
    return answer


def _made_before(job: NewJob, job_id: JobId | None) -> Fired | Duplicate:
    """Return the answer for a job made before: by this call, or by another.

    The same call made twice at once commits between two reads of the other.
    """
    return Fired(job.id) if job_id == job.id else Duplicate(job_id)


def _hold_schedule(tx: Tx, request: Fire) -> StoredSchedule | None:
    """Hold the row and the definition of a dispatch's schedule, if it is stored."""
    key = (request.flow, request.scope, request.name)
    tx.get(ROW, *key)
    item = tx.get(SCHEDULE, *key)
    if item is None or item.schedule.id != request.job.schedule_id:
        return None
    return counted(tx, item)


def _standing(tx: Tx, job: NewJob) -> Occurrence | None:
    """Return what the ledger has of a dispatch's time, be it a run of times around it."""
    assert job.schedule_id is not None
    assert job.nominal_ms is not None
    item = tx.get(OCCURRENCE, job.schedule_id, job.nominal_ms)
    if item is None:
        item = ledger.covering(tx, ScheduleId(job.schedule_id), job.nominal_ms, hold=False)
    return None if item is None else item.occurrence


def _planned(request: Fire, job: NewJob, earlier: Occurrence | None) -> Occurrence:
    """Return a planned row; what is known of the time stays."""
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


def _make(tx: Tx, new: NewJob, occurrence: Occurrence) -> FireAnswer:
    is_due = new.run_at_ms is not None and new.run_at_ms <= tx.now_ms
    decision = overlap.settle(tx, [new] if is_due else [], occurrence.run_at_ms)
    why = decision.skipped.get(new.id)
    if why is not None:
        assert decision.holder is not None
        skipped = replace(
            occurrence, state=_S.SKIPPED, reason=why, job_id=None, ended_at_ms=tx.now_ms
        )
        ledger.write(tx, StoredOccurrence(skipped, at_ms=tx.now_ms))
        return Overlapped(why, decision.holder)
    job_cases.take_key(tx, new)
    job = job_cases.add(tx, replace(new, in_line=new.id in decision.in_line))
    if job.state is JobState.QUEUED:
        # One that waits has not fired yet.
        occurrence = replace(occurrence, state=_S.FIRED, fired_at_ms=tx.now_ms)
    ledger.write(tx, StoredOccurrence(occurrence, at_ms=tx.now_ms))
    return Fired(job.id)
