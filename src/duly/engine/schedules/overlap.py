"""Overlap policy: which of a schedule's jobs may run.

A job holds its schedule's running marker from queued to its end, retries included. A transaction
that changes a marker holds it, which also guards the jobs in line for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.engine.jobs.moves import ask_to_stop, get, move, put
from duly.engine.kinds import JOB, MARKER, OCCURRENCE, WAITING_RUNS, Marker, run_order
from duly.engine.schedules import ledger
from duly.engine.transaction import Tx
from duly.model.jobs import Job, JobId, JobState, NewJob
from duly.model.ledger import OccurrenceState
from duly.rules.overlap import Asking, OverlapDecision, Unstarted, decide_late, decide_overlap
from duly.rules.planning import policies_or_usual

CANCELS = "cancel_running: a later run came"


def promote(tx: Tx, jobs: Sequence[Job]) -> None:
    """Queue due jobs of one schedule, earliest first, as its misfire and overlap policies allow."""
    policies = policies_or_usual(jobs[-1].policies or "{}")
    unstarted = [Unstarted(job.id, job.run_at_ms, job.turn) for job in jobs]
    missed = decide_late(unstarted, policies, tx.now_ms)
    kind = policies.misfire.kind
    for job in jobs:
        if job.id in missed:
            ledger.end_planned(tx, job, OccurrenceState.MISSED, kind)
            move(tx, job, [JobState.CANCELLED], reason=f"missed: {kind}")
    left = [job for job in jobs if job.id not in missed]
    decision = settle(tx, left)
    for job in left:
        if job.id in decision.skipped:
            _skip(tx, job, decision.skipped[job.id])
        elif job.id in decision.in_line:
            put(tx, replace(job, in_line=True))
        else:
            move(tx, job, [JobState.QUEUED])


def settle(tx: Tx, jobs: Sequence[Job | NewJob], came_at_ms: int | None = None) -> OverlapDecision:
    """Apply the overlap policy to jobs of one schedule that become due; return the decision.

    The jobs may be stored or new. The caller queues those that are neither skipped nor in line.
    Jobs already in line may be skipped here, and the holder may be stopped. `came_at_ms` is the
    run time of the occurrence if it differs from the job's.
    """
    asked = {job.id: job for job in sorted(jobs, key=_order) if job.turn is not None}
    schedule_id = jobs[0].schedule_id if asked else None
    if schedule_id is None:
        return OverlapDecision(None)
    marker = tx.get(MARKER, schedule_id)
    holder = None if marker is None else marker.job_id
    # Without a holder, no job is in line.
    line = [] if holder is None else [each.job for each in tx.members(WAITING_RUNS, schedule_id)]
    asking = [_asking(job, came_at_ms or job.run_at_ms or 0) for job in asked.values()]
    standing_in_line = [_asking(job, _came_at_ms(tx, job)) for job in line]
    decision = decide_overlap(asking, holder, standing_in_line, _held_at_ms(tx, holder))
    if decision.is_new and decision.holder is not None:
        tx.put(MARKER, Marker(schedule_id, decision.holder, tx.now_ms))
    for job in line:
        if job.id in decision.skipped:
            _skip(tx, job, decision.skipped[job.id])
    if decision.cancels is not None:
        standing: list[Job | NewJob] = [job for job in line if job.id not in decision.skipped]
        standing += [asked[job_id] for job_id in decision.in_line]
        _stop(tx, decision, min(standing, key=_order))
    return decision


def admit(tx: Tx, jobs: Sequence[NewJob]) -> OverlapDecision:
    """Apply the overlap policies to new jobs of several schedules; return one combined decision."""
    by_schedule: dict[str, list[NewJob]] = {}
    for job in jobs:
        by_schedule.setdefault(job.schedule_id or "", []).append(job)
    tx.get_many(MARKER, [(schedule_id,) for schedule_id in by_schedule])
    admitted = OverlapDecision(None)
    for _, own in sorted(by_schedule.items()):
        decision = settle(tx, own)
        admitted.in_line += decision.in_line
        admitted.skipped |= decision.skipped
    return admitted


def _order(job: Job | NewJob) -> tuple[int, int, JobId]:
    if isinstance(job, Job):
        return run_order(job)
    return job.run_at_ms or 0, job.nominal_ms or 0, job.id


def _asking(job: Job | NewJob, came_at_ms: int) -> Asking:
    assert job.turn is not None
    policies = policies_or_usual(job.policies or "{}")
    return Asking(job.id, job.turn, policies.overlap, came_at_ms)


def _came_at_ms(tx: Tx, job: Job) -> int:
    """Return the run time of a job's occurrence; a retry changes the job's own."""
    item = tx.peek(OCCURRENCE, job.schedule_id or "", job.nominal_ms or 0)
    return job.run_at_ms if item is None else item.occurrence.run_at_ms


def _held_at_ms(tx: Tx, holder: JobId | None) -> int | None:
    """Return the run time of the holder's occurrence; None: no holder, or it waited in line."""
    held = None if holder is None else tx.peek(JOB, holder)
    return _came_at_ms(tx, held.job) if held and held.job.turn == "asks" else None


def _skip(tx: Tx, job: Job, reason: str) -> None:
    ledger.end_planned(tx, job, OccurrenceState.SKIPPED, reason, tx.now_ms)
    move(tx, job, [JobState.CANCELLED], reason=reason)


def _stop(tx: Tx, decision: OverlapDecision, successor: Job | NewJob) -> None:
    """Ask a running holder to stop; cancel one that has not begun and pass its marker on."""
    assert decision.cancels is not None
    holder = get(tx, decision.cancels)
    assert holder is not None
    if holder.state is JobState.PROCESSING:
        ask_to_stop(tx, holder)
        return
    assert holder.schedule_id is not None
    tx.put(MARKER, Marker(holder.schedule_id, successor.id, tx.now_ms))
    move(tx, holder, [JobState.CANCELLED], reason=CANCELS)
    if successor.id in decision.in_line:
        decision.in_line.remove(successor.id)
    elif isinstance(successor, Job):
        move(tx, successor, [JobState.QUEUED])
