"""Sweeps over jobs in memory: leases that ended, run times that came, jobs kept long enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from duly.job_store import MAX_SWEEP, Retention
from duly.jobs import Job, JobState
from duly.outcomes import LEASE_EXPIRED, decide_loss
from duly.stores.checks import check_limit
from duly.stores.memory import turns
from duly.stores.memory.job_moves import close_attempt, move
from duly.stores.memory.tables import Tables

WAITING = frozenset({JobState.SCHEDULED, JobState.RETRYING})


def release_expired(tables: Tables, now_ms: int, limit: int) -> int:
    """Move jobs on whose lease has ended, earliest first."""
    check_limit(limit, MAX_SWEEP)
    ended = sorted(
        (job.lease_until_ms, job.id)
        for job, _ in tables.jobs.values()
        if job.lease_until_ms is not None and job.lease_until_ms <= now_ms
    )
    for _, job_id in ended[:limit]:
        _lose(tables, now_ms, tables.jobs[job_id].job)
    return len(ended[:limit])


def _lose(tables: Tables, now_ms: int, job: Job) -> None:
    loss = decide_loss(job)
    path = loss.path
    close_attempt(tables, now_ms, job, "lost", LEASE_EXPIRED)
    move(
        tables,
        now_ms,
        job,
        path,
        reason=LEASE_EXPIRED,
        ended_as="lost",
        start_mode=loss.start_mode,
        attempts=job.attempts + loss.charge,
        error=LEASE_EXPIRED if path[-1] == JobState.DEAD else job.error,
    )


def promote_due(
    tables: Tables, now_ms: int, limit: int, queues: Sequence[str] | None = None
) -> int:
    """Queue what has waited for its run time, earliest first; of some queues, where named.

    Jobs of schedules that come too late, or while another has not ended, are found but not queued.
    """
    check_limit(limit, MAX_SWEEP)
    due = sorted(
        (job.run_at_ms, job.id)
        for job, _ in tables.jobs.values()
        if is_waiting(job) and job.run_at_ms <= now_ms and (queues is None or job.queue in queues)
    )
    found = [tables.jobs[job_id].job for _, job_id in due[:limit]]
    by_schedule: dict[str, list[Job]] = defaultdict(list)
    for job in found:
        if job.state == JobState.SCHEDULED and job.policies and job.schedule_id is not None:
            by_schedule[job.schedule_id].append(job)
        else:
            move(tables, now_ms, job, [JobState.QUEUED])
    for jobs in by_schedule.values():
        turns.promote(tables, now_ms, jobs)
    return len(found)


def is_waiting(job: Job) -> bool:
    """Whether a job becomes queued when its run time comes."""
    return job.state in WAITING and not job.in_line


def prune(tables: Tables, now_ms: int, retention: Retention, limit: int) -> int:
    """Remove ended jobs, oldest first, and keys that have run out."""
    check_limit(limit, MAX_SWEEP)
    kept_ms = {
        JobState.SUCCEEDED: retention.succeeded_ms,
        JobState.CANCELLED: retention.cancelled_ms,
        JobState.DEAD: retention.dead_ms,
        JobState.DELETED: retention.deleted_ms,
    }
    ended = sorted(
        (job.finished_at_ms, job.id)
        for job, _ in tables.jobs.values()
        if job.finished_at_ms is not None and job.finished_at_ms <= now_ms - kept_ms[job.state]
    )
    for _, job_id in ended[:limit]:
        del tables.jobs[job_id], tables.job_events[job_id], tables.attempts[job_id]
    for key, held in list(tables.keys.items()):
        if held.expires_at_ms <= now_ms:
            del tables.keys[key]
    return len(ended[:limit])
