"""Reads of jobs, their events and their attempts in the memory store."""

from __future__ import annotations

from collections import Counter

from duly.model.events import Attempt, JobEvent, attempts_of
from duly.model.jobs import Job, JobId
from duly.model.queues import JobCount
from duly.model.stored_jobs import JobFilter
from duly.rules.checks import check_limit
from duly.stores.memory.tables import Tables


def get(tables: Tables, job_id: JobId) -> Job | None:
    """Return one job."""
    stored = tables.jobs.get(job_id)
    return None if stored is None else stored.job


def page(tables: Tables, which: JobFilter, before: JobId | None, limit: int) -> list[Job]:
    """Return one page of jobs by id, newest first, before an id."""
    check_limit(limit)
    ids = sorted((each for each in tables.jobs if before is None or each < before), reverse=True)
    jobs = (tables.jobs[each].job for each in ids)
    return [job for job in jobs if _fits(job, which)][:limit]


def _fits(job: Job, which: JobFilter) -> bool:
    return (
        which.state in (None, job.state)
        and which.queue in (None, job.queue)
        and which.workspace in (None, job.workspace)
        and which.action in (None, job.action)
        and which.schedule_id in (None, job.schedule_id)
        and which.correlation_id in (None, job.correlation_id)
    )


def count(tables: Tables) -> list[JobCount]:
    """Count jobs by queue and state."""
    counts = Counter((stored.job.queue, stored.job.state) for stored in tables.jobs.values())
    return [JobCount(*key, count) for key, count in sorted(counts.items())]


def events(tables: Tables, job_id: JobId, limit: int) -> list[JobEvent]:
    """Return the newest `limit` events of a job, oldest first."""
    check_limit(limit)
    return list(tables.job_events.get(job_id, ())[-limit:])


def attempts(tables: Tables, job_id: JobId, limit: int) -> list[Attempt]:
    """Return the newest `limit` attempts of a job, oldest first."""
    check_limit(limit)
    return attempts_of(tables.job_events.get(job_id, ()))[-limit:]
