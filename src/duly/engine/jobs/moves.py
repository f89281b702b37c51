"""State changes of jobs, with their events.

After the insert only `move` writes job states. It enforces the transition table, updates the
ledger, and releases the running marker when its job ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from duly.engine.kinds import JOB, JOB_EVENTS, MARKER, WAITING_RUNS, Marker, StoredJob
from duly.engine.schedules import ledger
from duly.engine.transaction import Tx
from duly.model.events import AttemptStatus, JobEvent
from duly.model.jobs import FINAL, Job, JobState, may_go


def move(
    tx: Tx,
    job: Job,
    path: Sequence[JobState],
    *,
    actor: str | None = None,
    reason: str | None = None,
    ended_as: AttemptStatus | None = None,
    took_ms: int | None = None,
    **changes: Any,
) -> Job:
    """Move a held job through a path of states, one event each; `changes` sets other fields."""
    moved = replace(job, in_line=False, **changes)
    for state in path:
        assert may_go(moved.state, state), f"{moved.state} to {state} is not a valid transition"
        moved = replace(moved, state=state, events=moved.events + 1)
        words = (actor, reason, ended_as, took_ms)
        event = JobEvent(job.id, moved.events, tx.now_ms, state, moved.fence, *words)
        tx.append(JOB_EVENTS, event)
        ledger.follow_job(tx, moved, state, ended_as)
    moved = replace(moved, finished_at_ms=tx.now_ms if moved.state in FINAL else None)
    if moved.state is not JobState.PROCESSING:
        moved = replace(moved, worker=None, lease_until_ms=None)
    put(tx, moved)
    if moved.state is JobState.QUEUED:
        tx.tell(f"queue:{moved.queue}")
    if moved.state in FINAL:
        give_back(tx, moved)
    return moved


def put(tx: Tx, job: Job) -> None:
    """Write a held job; its place in line moves by the same amount as its run time."""
    earlier = tx.get(JOB, job.id)
    assert earlier is not None
    tx.put(JOB, StoredJob(job, earlier.place + job.run_at_ms - earlier.job.run_at_ms))


def get(tx: Tx, job_id: str) -> Job | None:
    """Return a job and hold it."""
    item = tx.get(JOB, job_id)
    return None if item is None else item.job


def get_many(tx: Tx, job_ids: Sequence[str]) -> dict[str, Job]:
    """Return jobs and hold them."""
    found = tx.get_many(JOB, [(job_id,) for job_id in job_ids])
    return {item.job.id: item.job for item in found.values()}


def ask_to_stop(tx: Tx, job: Job) -> Job:
    """Set the cancel request of a running job, and notify its worker."""
    asked = replace(job, cancel_asked=True)
    put(tx, asked)
    tx.tell(f"cancel:{job.id}")
    return asked


def give_back(tx: Tx, job: Job) -> None:
    """Pass the marker of an ended job, if it holds one, to the first job in line."""
    schedule_id = job.schedule_id
    if schedule_id is None or job.turn is None:
        return
    # Peek before holding it: another holder of the marker may be waiting for a job that we hold.
    seen = tx.peek(MARKER, schedule_id)
    if seen is None or seen.job_id != job.id:
        return
    marker = tx.get(MARKER, schedule_id)
    if marker is not None and marker.job_id == job.id:
        pass_on(tx, schedule_id)


def hold_markers(tx: Tx, jobs: Iterable[Job]) -> None:
    """Hold the markers that are released when these jobs end, in the order of their schedules.

    A transaction that ends several jobs calls this first: one after another, they would be held in
    the order of the jobs, and two transactions could deadlock.
    """
    own = {job.id: job.schedule_id for job in jobs if job.turn is not None and job.schedule_id}
    schedules = sorted({schedule_id for schedule_id in own.values() if schedule_id is not None})
    if len(schedules) > 1:
        seen = tx.peek_many(MARKER, [(schedule_id,) for schedule_id in schedules])
        tx.get_many(MARKER, [key for key, marker in seen.items() if marker.job_id in own])


def pass_on(tx: Tx, schedule_id: str) -> None:
    """Give the freed marker of a schedule to the first job in line, or delete it."""
    first = tx.first(WAITING_RUNS, schedule_id)
    if tx.get(MARKER, schedule_id) is None and first is None:
        return
    if first is None:
        tx.delete(MARKER, schedule_id)
    else:
        tx.put(MARKER, Marker(schedule_id, first.job.id, tx.now_ms))
        move(tx, first.job, [JobState.QUEUED])
