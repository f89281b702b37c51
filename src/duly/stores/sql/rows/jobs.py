"""Reads of jobs, their events and attempts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from duly.model.events import Attempt, JobEvent, attempts_of
from duly.model.jobs import Job, JobId, JobState, StartMode, retry_from
from duly.model.queues import JobCount
from duly.model.stored_jobs import JobFilter
from duly.rules.checks import check_limit
from duly.stores.sql.db import Db
from duly.stores.sql.rows.job_events import ATTEMPT, attempt_events, event_of

EVENT = ", ".join(JobEvent._fields)


def job_of(row: Row[Any]) -> Job:
    """Return the job stored in a row with all columns."""
    found = row._asdict()
    return Job(
        id=found["id"],
        action=found["action"],
        queue=found["queue"],
        workspace=found["workspace"],
        scope=found["scope"],
        state=JobState(found["state"]),
        priority=found["priority"],
        run_at_ms=found["run_at_ms"],
        created_at_ms=found["created_at_ms"],
        finished_at_ms=found["finished_at_ms"],
        attempts=found["attempts"],
        max_attempts=found["max_attempts"],
        start_mode=StartMode(found["careful"]),
        fence=found["fence"],
        events=found["events"],
        retry=retry_from(found["retry"]),
        timeout_ms=found["timeout_ms"],
        # The row of an ended job keeps its last worker, for the events.
        worker=found["worker"] if found["state"] == JobState.PROCESSING else None,
        lease_until_ms=found["lease_until_ms"],
        unstarted=found["unstarted"],
        cancel_asked=bool(found["cancel_asked"]),
        key=found["idempotency_key"],
        schedule_id=found["schedule_id"],
        nominal_ms=found["nominal_ms"],
        policies=found["policies"],
        turn=found["turn"],
        in_line=bool(found["in_line"]),
        correlation_id=found["correlation_id"],
        metadata=found["metadata"],
        input=found["input"],
        result=found["result"],
        error=found["error"],
        progress=found["progress"],
    )


def get_job(db: Db, job_id: JobId) -> Job | None:
    """Return one job, or None."""
    row = db.run("SELECT * FROM {p}jobs WHERE id = :id", id=job_id).first()
    return None if row is None else job_of(row)


def list_jobs(
    db: Db, which: JobFilter, *, before: JobId | None = None, limit: int = 100
) -> list[Job]:
    """Return one page of jobs by id, newest first."""
    check_limit(limit)
    wanted = {
        name: getattr(which, name)
        for name in ("state", "queue", "workspace", "action", "schedule_id", "correlation_id")
        if getattr(which, name) is not None
    }
    terms = [f"{name} = :{name}" for name in wanted]
    if before is not None:
        terms.append("id < :before")
        wanted["before"] = before
    where = f"WHERE {' AND '.join(terms)}" if terms else ""
    rows = db.run(
        f"SELECT * FROM {{p}}jobs {where} ORDER BY id DESC LIMIT :limit",
        limit=limit,
        **wanted,
    )
    return [job_of(row) for row in rows]


def count_jobs(db: Db) -> list[JobCount]:
    """Count jobs by queue and state."""
    rows = db.run(
        "SELECT queue, state, count(*) AS jobs FROM {p}jobs "
        "GROUP BY queue, state ORDER BY queue, state"
    )
    return [JobCount(row.queue, JobState(row.state), row.jobs) for row in rows]


def job_events(db: Db, job_id: JobId, limit: int = 1_000) -> list[JobEvent]:
    """Return the newest events of a job, oldest first."""
    check_limit(limit)
    return _events(db, job_id, "ORDER BY seq DESC LIMIT :limit", limit=limit)[-limit:]


def job_attempts(db: Db, job_id: JobId, limit: int = 1_000) -> list[Attempt]:
    """Return the attempts of a job, each built from its claim event and its end event."""
    check_limit(limit)
    newest = "AND attempt > (SELECT fence FROM {p}jobs WHERE id = :id) - :limit ORDER BY seq DESC"
    return attempts_of(_events(db, job_id, newest, limit=limit))


def _events(db: Db, job_id: JobId, which: str, **values: int) -> list[JobEvent]:
    """Return the events of the table, then those stored in the job's row."""
    row = db.run(f"SELECT {ATTEMPT} FROM {{p}}jobs WHERE id = :id", id=job_id).first()
    if row is None:
        return []
    statement = f"SELECT {EVENT} FROM {{p}}job_events WHERE job_id = :id {which}"
    rows = db.run(statement, id=job_id, **values).all()
    events = [event_of(each) for each in reversed(rows)]
    newest = events[-1].seq if events else 0
    return events + [each for each in attempt_events(row) if each.seq > newest]
