"""Turns in memory: jobs of one schedule whose time has come, before its running marker."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.jobs import Job, JobId, JobState, NewJob
from duly.ledger import OccurrenceState
from duly.planning import policies_or_usual
from duly.schedules import ScheduleId
from duly.stores.memory import ledger
from duly.stores.memory.job_moves import ask_to_stop, line_of, move, put, queue, turn_key
from duly.stores.memory.tables import Tables
from duly.turns import Asking, Turns, Unstarted, decide_late, decide_turns

CANCELS = "cancel_running: a later run came"


def promote(tables: Tables, now_ms: int, jobs: Sequence[Job]) -> None:
    """Queue scheduled jobs of one schedule, the earliest first, as its policies allow."""
    policies = policies_or_usual(jobs[-1].policies or "{}")
    unstarted = [Unstarted(job.id, job.run_at_ms, job.turn) for job in jobs]
    missed = decide_late(unstarted, policies, now_ms)
    kind = policies.misfire.kind
    for job in jobs:
        if job.id in missed:
            ledger.end_planned(tables, job, OccurrenceState.MISSED, kind)
            move(tables, now_ms, job, [JobState.CANCELLED], reason=f"missed: {kind}")
    left = [job for job in jobs if job.id not in missed]
    turns = settle(tables, now_ms, left)
    for job in left:
        if job.id in turns.skipped:
            _skip(tables, now_ms, job, turns.skipped[job.id])
        elif job.id in turns.in_line:
            put(tables, replace(job, in_line=True))
        else:
            move(tables, now_ms, job, [JobState.QUEUED])


def settle(
    tables: Tables, now_ms: int, jobs: Sequence[Job | NewJob], came_at_ms: int | None = None
) -> Turns:
    """Let jobs of one schedule ask for its marker, and deal with who was in the way.

    They may be stored or not. Those that are neither skipped nor in line are to be queued.
    `came_at_ms` is the run time of their occurrence, where it is not the job's.
    """
    asked = {job.id: job for job in sorted(jobs, key=turn_key) if job.turn is not None}
    schedule_id = jobs[0].schedule_id if asked else None
    if schedule_id is None:
        return Turns(None)
    holder = tables.running.get(schedule_id)
    # Without a holder nobody stands in line.
    line = [] if holder is None else line_of(tables, schedule_id)
    asking = [_asking(job, came_at_ms or job.run_at_ms or 0) for job in asked.values()]
    standing_in_line = [_asking(job, _came_at_ms(tables, job)) for job in line]
    turns = decide_turns(asking, holder, standing_in_line, _held_at_ms(tables, holder))
    if turns.is_new and turns.holder is not None:
        tables.running[schedule_id] = turns.holder
    for job in line:
        if job.id in turns.skipped:
            _skip(tables, now_ms, job, turns.skipped[job.id])
    if turns.cancels is not None:
        standing: list[Job | NewJob] = [job for job in line if job.id not in turns.skipped]
        standing += [asked[job_id] for job_id in turns.in_line]
        _stop(tables, now_ms, turns, min(standing, key=turn_key))
    return turns


def _asking(job: Job | NewJob, came_at_ms: int) -> Asking:
    assert job.turn is not None
    overlap = policies_or_usual(job.policies or "{}").overlap
    return Asking(job.id, job.turn, overlap, came_at_ms)


def _came_at_ms(tables: Tables, job: Job) -> int:
    """The run time of a job's occurrence."""
    entry = tables.ledger.get((ScheduleId(job.schedule_id or ""), job.nominal_ms or 0))
    return job.run_at_ms if entry is None else entry.occurrence.run_at_ms


def _held_at_ms(tables: Tables, holder: JobId | None) -> int | None:
    """The run time of a holder's occurrence, if it did not wait for its turn."""
    held = None if holder is None else tables.jobs.get(holder)
    return _came_at_ms(tables, held.job) if held and held.job.turn == "asks" else None


def _skip(tables: Tables, now_ms: int, job: Job, reason: str) -> None:
    ledger.end_planned(tables, job, OccurrenceState.SKIPPED, reason, now_ms)
    move(tables, now_ms, job, [JobState.CANCELLED], reason=reason)


def _stop(tables: Tables, now_ms: int, turns: Turns, heir: Job | NewJob) -> None:
    """Ask a running holder to stop; end one that has not begun, whose marker the heir gets."""
    assert turns.cancels is not None
    holder = tables.jobs[turns.cancels].job
    if holder.state == JobState.PROCESSING:
        ask_to_stop(tables, holder)
        return
    assert holder.schedule_id is not None
    tables.running[holder.schedule_id] = heir.id
    move(tables, now_ms, holder, [JobState.CANCELLED], reason=CANCELS)
    if heir.id in turns.in_line:
        turns.in_line.remove(heir.id)
    elif isinstance(heir, Job):
        queue(tables, now_ms, heir)
