"""Moves of jobs in memory: every change of state, with its events, and what asks for one.

`move` is the only writer of states after the insert, so the transition table holds everywhere, the
ledger follows, and a running marker is given back wherever its job ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from duly.events import AttemptStatus, JobEvent
from duly.job_store import JobRefused, ProgressNote
from duly.jobs import FINAL, Job, JobId, JobState, NewJob, may_go
from duly.outcomes import Finish, check_finish, mode_after
from duly.stores.memory.ledger import follow_job
from duly.stores.memory.tables import StoredJob, Tables

CANCELLABLE = frozenset({JobState.SCHEDULED, JobState.QUEUED, JobState.RETRYING})
RETRIABLE = frozenset({JobState.DEAD, JobState.RETRYING, JobState.SCHEDULED})


def move(
    tables: Tables,
    now_ms: int,
    job: Job,
    path: Sequence[JobState],
    *,
    actor: str | None = None,
    reason: str | None = None,
    ended_as: AttemptStatus | None = None,
    took_ms: int | None = None,
    **changes: Any,
) -> Job:
    """Take a job along a path of states, one event each, and change some of its fields."""
    moved = replace(job, in_line=False, **changes)
    for state in path:
        assert may_go(moved.state, state), f"{moved.state} to {state} is not in the table"
        moved = replace(moved, state=state, events=moved.events + 1)
        words = (actor, reason, ended_as, took_ms)
        event = JobEvent(job.id, moved.events, now_ms, state, moved.fence, *words)
        tables.job_events[job.id] += (event,)
        follow_job(tables, now_ms, moved, state, ended_as)
    moved = replace(moved, finished_at_ms=now_ms if moved.state in FINAL else None)
    if moved.state != JobState.PROCESSING:
        moved = replace(moved, worker=None, lease_until_ms=None)
    put(tables, moved)
    if moved.state in FINAL:
        _give_back(tables, now_ms, moved)
    return moved


def _give_back(tables: Tables, now_ms: int, job: Job) -> None:
    """Hand the marker of a job that ended, if it has it, to the first in line."""
    schedule_id = job.schedule_id
    if schedule_id is None or tables.running.get(schedule_id) != job.id:
        return
    del tables.running[schedule_id]
    line = line_of(tables, schedule_id)
    if line:
        tables.running[schedule_id] = line[0].id
        queue(tables, now_ms, line[0])


def queue(tables: Tables, now_ms: int, job: Job) -> None:
    """Queue a job whose turn it is, and let workers know."""
    move(tables, now_ms, job, [JobState.QUEUED])
    tables.tell(f"queue:{job.queue}")


def line_of(tables: Tables, schedule_id: str) -> list[Job]:
    """Who waits for the marker of a schedule, in order."""
    jobs = (stored.job for stored in tables.jobs.values())
    return sorted((j for j in jobs if j.in_line and j.schedule_id == schedule_id), key=turn_key)


def turn_key(job: Job | NewJob) -> tuple[int, int, JobId]:
    """The order in which the jobs of a schedule get their turns."""
    return job.run_at_ms or 0, job.nominal_ms or 0, job.id


def ask_to_stop(tables: Tables, job: Job) -> Job:
    """Mark a running job, and let its worker know."""
    asked = replace(job, cancel_asked=True)
    put(tables, asked)
    tables.tell(f"cancel:{job.id}")
    return asked


def put(tables: Tables, job: Job) -> None:
    """Store a job; its place moves as far as its run time."""
    earlier = tables.jobs[job.id]
    place = earlier.place + job.run_at_ms - earlier.job.run_at_ms
    tables.jobs[job.id] = StoredJob(job, place)


def held(tables: Tables, job_id: JobId, fence: int) -> Job | None:
    """The running job, if that claim of it still stands."""
    stored = tables.jobs.get(job_id)
    if stored is None or stored.job.state != JobState.PROCESSING or stored.job.fence != fence:
        return None
    return stored.job


def close_attempt(
    tables: Tables,
    now_ms: int,
    job: Job,
    status: AttemptStatus,
    error: str | None,
    took_ms: int | None = None,
) -> None:
    """Record how the current attempt of a job ended."""
    *earlier, last = tables.attempts[job.id]
    assert last.number == job.fence
    closed = last._replace(ended_at_ms=now_ms, status=status, error=error, took_ms=took_ms)
    tables.attempts[job.id] = (*earlier, closed)


def finish(tables: Tables, now_ms: int, finishes: Sequence[Finish]) -> list[JobId]:
    """Store how attempts ended; gives the ids whose fence was void."""
    for each in finishes:
        check_finish(each)
    void: list[JobId] = []
    for each in finishes:
        job = held(tables, each.job_id, each.fence)
        if job is None:
            void.append(each.job_id)
        else:
            _finish_one(tables, now_ms, job, each)
    return void


def _path(finish: Finish) -> tuple[JobState, ...]:
    return (finish.state,) if finish.via is None else (finish.via, finish.state)


def _finish_one(tables: Tables, now_ms: int, job: Job, finish: Finish) -> None:
    if job.cancel_asked and finish.state in (JobState.RETRYING, JobState.QUEUED):
        finish = Finish(
            job.id,
            job.fence,
            JobState.CANCELLED,
            "cancelled",
            finish.charge,
            error="cancelled",
            took_ms=finish.took_ms,
            progress=finish.progress,
            isolate=finish.isolate,
        )
    close_attempt(tables, now_ms, job, finish.status, finish.error, finish.took_ms)
    is_back = finish.state == JobState.QUEUED
    move(
        tables,
        now_ms,
        job,
        _path(finish),
        reason=finish.error,
        ended_as=None if finish.status == finish.state else finish.status,
        took_ms=finish.took_ms,
        attempts=job.attempts + finish.charge,
        run_at_ms=job.run_at_ms if finish.delay_ms is None else now_ms + finish.delay_ms,
        result=job.result if is_back else finish.result,
        error=job.error if is_back else finish.error,
        progress=job.progress if finish.progress is None else finish.progress,
        start_mode=mode_after(finish, job.start_mode),
    )


def note_progress(tables: Tables, notes: Sequence[ProgressNote]) -> list[JobId]:
    """Keep texts beside running jobs; return the ids whose fence is void."""
    void: list[JobId] = []
    for job_id, fence, progress in notes:
        job = held(tables, job_id, fence)
        if job is None:
            void.append(job_id)
        else:
            put(tables, replace(job, progress=progress))
    return void


def cancel(
    tables: Tables, now_ms: int, job_id: JobId, by: str | None, reason: str | None
) -> Job | JobRefused:
    """Cancel what has not begun; mark what runs."""
    job = _found(tables, job_id)
    if job is None or job.state == JobState.CANCELLED:
        return job or JobRefused(job_id, None)
    if job.state == JobState.PROCESSING:
        return ask_to_stop(tables, job)
    if job.state not in CANCELLABLE:
        return JobRefused(job_id, job.state)
    return move(tables, now_ms, job, [JobState.CANCELLED], actor=by, reason=reason)


def retry(
    tables: Tables,
    now_ms: int,
    job_id: JobId,
    reset_attempts: bool,
    by: str | None,
    reason: str | None,
) -> Job | JobRefused:
    """Queue a job again, due now."""
    job = _found(tables, job_id)
    if job is None or job.state == JobState.QUEUED:
        return job or JobRefused(job_id, None)
    if job.state not in RETRIABLE:
        return JobRefused(job_id, job.state)
    changes: dict[str, Any] = {"max_attempts": max(job.max_attempts, job.attempts + 1)}
    if reset_attempts:
        # With one attempt the mark may mean at_most_once, which a retry does not change.
        changes = {"attempts": 0}
    if job.turn is not None and job.schedule_id is not None:
        # An operator's word stands: without the marker it runs anyway.
        tables.running.setdefault(job.schedule_id, job.id)
    return move(
        tables,
        now_ms,
        job,
        [JobState.QUEUED],
        actor=by,
        reason=reason or ("retry, attempts reset" if reset_attempts else "retry"),
        run_at_ms=now_ms,
        cancel_asked=False,
        **changes,
    )


def delete(
    tables: Tables, now_ms: int, job_id: JobId, by: str | None, reason: str | None
) -> Job | JobRefused:
    """Mark a job deleted and empty it."""
    job = _found(tables, job_id)
    if job is None or job.state == JobState.DELETED:
        return job or JobRefused(job_id, None)
    if not may_go(job.state, JobState.DELETED):
        return JobRefused(job_id, job.state)
    return move(
        tables,
        now_ms,
        job,
        [JobState.DELETED],
        actor=by,
        reason=reason,
        input="null",
        result=None,
        error=None,
        progress=None,
        metadata=None,
    )


def _found(tables: Tables, job_id: JobId) -> Job | None:
    stored = tables.jobs.get(job_id)
    return None if stored is None else stored.job
