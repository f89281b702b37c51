"""Jobs in memory: inserting them, and reading them with their events and attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from duly.events import Attempt, JobEvent
from duly.job_store import Enqueued, JobCount, JobFilter, KeyTaken
from duly.jobs import Job, JobId, JobState, NewJob, place_of
from duly.stores.checks import check_inserts, check_limit
from duly.stores.memory.tables import StoredJob, StoredKey, Tables


def insert(tables: Tables, now_ms: int, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
    """Store jobs with their first events; earlier ones count for later ones."""
    check_inserts(jobs)
    return [insert_one(tables, now_ms, job) for job in jobs]


def insert_one(tables: Tables, now_ms: int, new: NewJob) -> Enqueued | KeyTaken:
    """Store a job with its first event."""
    if new.id in tables.jobs:
        return Enqueued(new.id, created=False)
    if new.key is not None:
        digest = sha256(new.input.encode()).hexdigest()
        held = held_key(tables, now_ms, new)
        if held is not None:
            same = held.digest == digest
            return Enqueued(held.job_id, created=False) if same else KeyTaken(held.job_id)
        place = (new.workspace, new.action, new.key)
        tables.keys[place] = StoredKey(new.id, digest, now_ms + new.key_ttl_ms)
    job = _first_form(new, now_ms)
    tables.jobs[job.id] = StoredJob(job, place_of(job.priority, job.run_at_ms, new.aging_ms))
    tables.job_events[job.id] = (JobEvent(job.id, 1, now_ms, job.state, 0, None, None),)
    tables.attempts[job.id] = ()
    if job.state == JobState.QUEUED:
        tables.tell(f"queue:{job.queue}")
    return Enqueued(job.id, created=True)


def held_key(tables: Tables, now_ms: int, new: NewJob) -> StoredKey | None:
    """What the key of a job stands for already."""
    if new.key is None:
        return None
    held = tables.keys.get((new.workspace, new.action, new.key))
    return None if held is None or held.expires_at_ms <= now_ms else held


def _first_form(new: NewJob, now_ms: int) -> Job:
    run_at_ms = now_ms if new.run_at_ms is None else new.run_at_ms
    has_to_wait = run_at_ms > now_ms or new.in_line
    return Job(
        id=new.id,
        action=new.action,
        queue=new.queue,
        workspace=new.workspace,
        scope=new.scope,
        state=JobState.SCHEDULED if has_to_wait else JobState.QUEUED,
        priority=new.priority,
        run_at_ms=run_at_ms,
        created_at_ms=now_ms,
        finished_at_ms=None,
        attempts=0,
        max_attempts=new.max_attempts,
        start_mode=new.start_mode,
        fence=0,
        events=1,
        retry=new.retry,
        timeout_ms=new.timeout_ms,
        worker=None,
        lease_until_ms=None,
        unstarted=None,
        cancel_asked=False,
        key=new.key,
        schedule_id=new.schedule_id,
        nominal_ms=new.nominal_ms,
        policies=new.policies,
        turn=new.turn,
        in_line=new.in_line,
        correlation_id=new.correlation_id,
        metadata=new.metadata,
        input=new.input,
        result=None,
        error=None,
        progress=None,
    )


def get(tables: Tables, job_id: JobId) -> Job | None:
    """Read one job."""
    stored = tables.jobs.get(job_id)
    return None if stored is None else stored.job


def page(tables: Tables, which: JobFilter, before: JobId | None, limit: int) -> list[Job]:
    """Jobs by id, newest first."""
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
    """Jobs by queue and state."""
    counts = Counter((stored.job.queue, stored.job.state) for stored in tables.jobs.values())
    return [JobCount(*key, count) for key, count in sorted(counts.items())]


def events(tables: Tables, job_id: JobId, limit: int) -> list[JobEvent]:
    """The newest events of a job, oldest first."""
    check_limit(limit)
    return list(tables.job_events.get(job_id, ())[-limit:])


def attempts(tables: Tables, job_id: JobId, limit: int) -> list[Attempt]:
    """The newest tries of a job, oldest first."""
    check_limit(limit)
    return list(tables.attempts.get(job_id, ())[-limit:])
