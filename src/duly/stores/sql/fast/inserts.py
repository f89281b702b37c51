"""Insert jobs.

Idempotency keys are checked first, then ids, both by INSERT with ON CONFLICT: no key is taken
without storing its job, and nothing aborts the transaction, which may be the caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.engine.jobs.jobs import digest_of
from duly.model.jobs import JobId, JobState, NewJob, place_of, retry_text
from duly.model.stored_jobs import Enqueued, KeyTaken
from duly.rules.checks import check_inserts
from duly.stores.sql.db import Db


def insert_jobs(db: Db, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
    """Store jobs with their first events; return a result per job."""
    check_inserts(jobs)
    fresh: dict[JobId, NewJob] = {}
    keys = Keys(db, jobs)
    answers = [_accept(job, fresh, keys) for job in jobs]
    states = db.fast.add_jobs(db, list(fresh.values())) if fresh else {}
    # Also for jobs due later: a worker sleeping until the next run time must learn of earlier ones.
    db.dialect.tell(db, {f"queue:{job.queue}" for job in fresh.values() if job.id in states})
    if len(states) == len(jobs):
        return answers
    return [
        answer._replace(created=answer.job_id in states)
        if isinstance(answer, Enqueued) and answer.created
        else answer
        for answer in answers
    ]


def _accept(job: NewJob, fresh: dict[JobId, NewJob], keys: Keys) -> Enqueued | KeyTaken:
    """Add a job to `fresh`, unless its id or key exists already; return the result."""
    if job.id in fresh or job.id in keys.known:
        return Enqueued(job.id, created=False)
    if job.key is not None:
        answer = keys.take(job)
        if answer is not None:
            return answer
    fresh[job.id] = job
    return Enqueued(job.id, created=True)


def full_row(job: NewJob, now_ms: int) -> dict[str, Any]:
    """Return the columns of a new job; `now_ms` is the database's time."""
    run_at_ms = now_ms if job.run_at_ms is None else job.run_at_ms
    state = JobState.SCHEDULED if run_at_ms > now_ms or job.in_line else JobState.QUEUED
    return {
        "id": job.id,
        "action": job.action,
        "queue": job.queue,
        "workspace": job.workspace,
        "scope": job.scope,
        "state": state.value,
        "priority": job.priority,
        "place": place_of(job.priority, run_at_ms, job.aging_ms),
        "run_at_ms": run_at_ms,
        "created_at_ms": now_ms,
        "attempts": 0,
        "max_attempts": job.max_attempts,
        "careful": int(job.start_mode),
        "fence": 0,
        "events": 1,
        "retry": retry_text(job.retry),
        "timeout_ms": job.timeout_ms,
        "cancel_asked": 0,
        "waits": int(state is JobState.SCHEDULED and not job.in_line),
        "idempotency_key": job.key,
        "schedule_id": job.schedule_id,
        "nominal_ms": job.nominal_ms,
        "policies": job.policies,
        "turn": job.turn,
        "in_line": int(job.in_line),
        "correlation_id": job.correlation_id,
        "metadata": job.metadata,
        "input": job.input,
    }


def first_event(row: dict[str, Any]) -> dict[str, Any]:
    """Return the first event of a new job."""
    return {
        "job_id": row["id"],
        "seq": 1,
        "at_ms": row["created_at_ms"],
        "state": row["state"],
        "attempt": 0,
    }


class Keys:
    """The idempotency keys of a batch of jobs, taken one job after another."""

    def __init__(self, db: Db, jobs: Sequence[NewJob]) -> None:
        self._db = db
        keyed = [job.id for job in jobs if job.key is not None]
        self.known: set[str] = set()
        """Ids of jobs with keys that exist already: neither job nor key is written."""
        self._now_ms = 0
        if keyed:
            found = db.run("SELECT id FROM {p}jobs WHERE id IN :ids", ids=keyed)
            self.known, self._now_ms = set(found.scalars()), db.now_ms()

    def take(self, job: NewJob) -> Enqueued | KeyTaken | None:
        """Take the key for a job; return the result if the key is held already, else None."""
        table = self._db.tables.idempotency
        key = {"workspace": job.workspace, "action": job.action, "idempotency_key": job.key}
        mine = {
            "job_id": job.id,
            "input_digest": digest_of(job.input),
            "expires_at_ms": self._now_ms + job.key_ttl_ms,
        }
        statement = self._db.fast.insert(table).values(key | mine)
        taken = self._db.connection.execute(
            statement.on_conflict_do_update(
                index_elements=list(key), set_=mine, where=table.c.expires_at_ms <= self._now_ms
            ),
            execution_options={"preserve_rowcount": True},
        )
        if taken.rowcount == 1:
            return None
        # A key outlives its job: its holder may be a removed job with the same id.
        holder = self._db.run(
            "SELECT job_id, input_digest FROM {p}idempotency WHERE workspace = :workspace "
            "AND action = :action AND idempotency_key = :idempotency_key",
            **key,
        ).one()
        same = holder.input_digest == mine["input_digest"]
        return Enqueued(holder.job_id, created=False) if same else KeyTaken(holder.job_id)
