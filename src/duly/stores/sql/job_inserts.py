"""Station 5: storing jobs.

Keys decide first, then ids: both by "insert unless it is there", so that no answer takes a key
without storing its job, and nothing ever aborts the transaction, which may be the caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from duly.errors import InvalidInput
from duly.job_store import MAX_INSERT, Enqueued, KeyTaken
from duly.jobs import JobId, JobState, NewJob, place_of, retry_text
from duly.stores.sql.db import Db

_PORTABLE_CHUNK = 500


class JobRow(msgspec.Struct):
    """What a new job's row is made of; the database adds the time."""

    id: str
    action: str
    queue: str
    workspace: str
    scope: str
    priority: int
    weight: int
    """How far priority moves the place."""
    run_at_ms: int | None
    max_attempts: int
    careful: int
    retry: str
    timeout_ms: int
    idempotency_key: str | None
    schedule_id: str | None
    nominal_ms: int | None
    correlation_id: str | None
    metadata: str | None
    input: str


def insert_jobs(
    db: Db, jobs: Sequence[NewJob], *, foreign: bool = False
) -> list[Enqueued | KeyTaken]:
    """Store jobs with their first events; `foreign`: on a driver that may be any."""
    if len(jobs) > MAX_INSERT:
        raise InvalidInput(f"{len(jobs)} jobs at once; allowed: {MAX_INSERT}")
    rows: dict[JobId, JobRow] = {}
    keys = _Keys(db, jobs)
    answers = [_accept(job, rows, keys) for job in jobs]
    if foreign:
        stored = _insert_portably(db, list(rows.values()))
    else:
        stored = db.dialect.add_jobs(db, list(rows.values()))
    states = dict(stored)
    waiting = {row.queue for row in rows.values() if states.get(row.id) == JobState.QUEUED}
    db.dialect.tell(db, {f"queue:{queue}" for queue in waiting})
    return [
        answer._replace(created=answer.job_id in states)
        if isinstance(answer, Enqueued) and answer.created
        else answer
        for answer in answers
    ]


def _accept(job: NewJob, rows: dict[JobId, JobRow], keys: _Keys) -> Enqueued | KeyTaken:
    """Add a job to what will be stored, unless its id or its key is there already."""
    if job.id in rows or job.id in keys.known:
        return Enqueued(job.id, created=False)
    if job.key is not None:
        answer = keys.take(job)
        if answer is not None:
            return answer
    rows[job.id] = row_of(job)
    return Enqueued(job.id, created=True)


def row_of(job: NewJob) -> JobRow:
    """A job as the values of its row."""
    return JobRow(
        job.id,
        job.action,
        job.queue,
        job.workspace,
        job.scope,
        job.priority,
        place_of(job.priority, 0, job.aging_ms),
        job.run_at_ms,
        job.max_attempts,
        int(job.is_careful),
        retry_text(job.retry),
        job.timeout_ms,
        job.key,
        job.schedule_id,
        job.nominal_ms,
        job.correlation_id,
        job.metadata,
        job.input,
    )


def full_row(row: JobRow, now_ms: int) -> dict[str, Any]:
    """Every column of a new job, at a time known to be the database's."""
    values = msgspec.structs.asdict(row)
    run_at_ms = now_ms if row.run_at_ms is None else row.run_at_ms
    state = JobState.SCHEDULED if run_at_ms > now_ms else JobState.QUEUED
    return values | {
        "state": state.value,
        "place": run_at_ms + values.pop("weight"),
        "run_at_ms": run_at_ms,
        "created_at_ms": now_ms,
        "attempts": 0,
        "fence": 0,
        "events": 1,
        "cancel_asked": 0,
    }


def first_event(row: dict[str, Any]) -> dict[str, Any]:
    """The event that goes with a new job."""
    return {
        "job_id": row["id"],
        "seq": 1,
        "at_ms": row["created_at_ms"],
        "state": row["state"],
        "attempt": 0,
    }


def _insert_portably(db: Db, rows: Sequence[JobRow]) -> list[tuple[str, str]]:
    """Ids and states of what was new, by SQL that every driver takes."""
    jobs, events = db.tables.jobs, db.tables.job_events
    now_ms = db.now_ms()
    stored: list[tuple[str, str]] = []
    for start in range(0, len(rows), _PORTABLE_CHUNK):
        full = [full_row(row, now_ms) for row in rows[start : start + _PORTABLE_CHUNK]]
        statement = db.dialect.insert_or_ignore(jobs).returning(jobs.c.id)
        new = set(db.connection.execute(statement, full).scalars())
        added = [row for row in full if row["id"] in new]
        if added:
            db.connection.execute(
                db.dialect.insert_or_ignore(events), [first_event(row) for row in added]
            )
        stored += [(row["id"], row["state"]) for row in added]
    return stored


class _Keys:
    """Idempotency keys as they are taken, one job after another."""

    def __init__(self, db: Db, jobs: Sequence[NewJob]) -> None:
        self._db = db
        keyed = [job.id for job in jobs if job.key is not None]
        self.known: set[str] = set()
        """Ids of jobs with keys that are stored already: they are left alone, keys and all."""
        self._now_ms = 0
        if keyed:
            found = db.run("SELECT id FROM {p}jobs WHERE id IN :ids", ids=keyed)
            self.known, self._now_ms = set(found.scalars()), db.now_ms()

    def take(self, job: NewJob) -> Enqueued | KeyTaken | None:
        """Take the key for a job; an answer where it stands for another job."""
        table = self._db.tables.idempotency
        key = {"workspace": job.workspace, "action": job.action, "idempotency_key": job.key}
        mine = {
            "job_id": job.id,
            "input_digest": _digest(job.input),
            "expires_at_ms": self._now_ms + job.key_ttl_ms,
        }
        statement = self._db.dialect.insert(table).values(key | mine)
        self._db.connection.execute(
            statement.on_conflict_do_update(
                index_elements=list(key), set_=mine, where=table.c.expires_at_ms <= self._now_ms
            )
        )
        holder = self._db.run(
            "SELECT job_id, input_digest FROM {p}idempotency WHERE workspace = :workspace "
            "AND action = :action AND idempotency_key = :idempotency_key",
            **key,
        ).one()
        if holder.job_id == job.id:
            return None
        same = holder.input_digest == mine["input_digest"]
        return Enqueued(holder.job_id, created=False) if same else KeyTaken(holder.job_id)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
