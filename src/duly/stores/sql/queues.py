"""Around the jobs: what is decided about queues, who works, and named locks."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Row

from duly.job_store import Lock, QueueSettings, WorkerInfo
from duly.jobs import ALL_QUEUES, WorkerId
from duly.stores.checks import check_limit, check_lock, check_queue_settings
from duly.stores.sql.db import Db


def settings_of(row: Row[Any]) -> QueueSettings:
    """A queue's settings from its row."""
    return QueueSettings(row.queue, bool(row.paused), row.note, row.job_limit, row.workspace_limit)


def set_queue(db: Db, settings: QueueSettings) -> None:
    """Store what is decided about a queue, or about all of them."""
    check_queue_settings(settings)
    decided = {
        "paused": int(settings.is_paused),
        "note": settings.note,
        "job_limit": settings.job_limit,
        "workspace_limit": settings.workspace_limit,
    }
    statement = db.dialect.insert(db.tables.queues).values({"queue": settings.queue} | decided)
    db.connection.execute(statement.on_conflict_do_update(index_elements=["queue"], set_=decided))
    is_all = settings.queue == ALL_QUEUES
    db.dialect.tell(db, {"queue:*" if is_all else f"queue:{settings.queue}"})


def list_queues(db: Db) -> list[QueueSettings]:
    """Return all configured queues."""
    return [settings_of(row) for row in db.run("SELECT * FROM {p}queues ORDER BY queue")]


def beat(db: Db, worker: WorkerInfo) -> None:
    """Register a worker, or say that it lives."""
    now_ms = db.now_ms()
    said = {
        "host": worker.host,
        "pid": worker.pid,
        "queues": json.dumps(worker.queues),
        "slots": worker.slots,
        "running": worker.running,
        "stopping": int(worker.is_stopping),
        "beat_at_ms": now_ms,
        "actions": None if worker.actions is None else json.dumps(worker.actions),
    }
    statement = db.dialect.insert(db.tables.workers).values(
        said | {"id": worker.id, "started_at_ms": now_ms}
    )
    db.connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=said))


def list_workers(db: Db, limit: int = 100) -> list[WorkerInfo]:
    """Workers by id."""
    check_limit(limit)
    return [
        WorkerInfo(
            row.id,
            row.host,
            row.pid,
            tuple(json.loads(row.queues)),
            row.slots,
            row.running,
            bool(row.stopping),
            row.started_at_ms,
            row.beat_at_ms,
            None if row.actions is None else tuple(json.loads(row.actions)),
        )
        for row in db.run("SELECT * FROM {p}workers ORDER BY id LIMIT :limit", limit=limit)
    ]


def remove_worker(db: Db, worker: WorkerId) -> None:
    """Take a worker off the list."""
    db.run("DELETE FROM {p}workers WHERE id = :id", id=worker)


def remove_silent_workers(db: Db, silent_ms: int, limit: int = 100) -> list[WorkerId]:
    """Take workers off the list that have said nothing for so long."""
    check_limit(limit)
    gone = db.run(
        "DELETE FROM {p}workers WHERE id IN ("
        "WITH silent AS MATERIALIZED (SELECT id FROM {p}workers "
        "WHERE beat_at_ms <= {now} - :silent_ms ORDER BY id LIMIT :limit {skip}) "
        "SELECT id FROM silent) RETURNING id",
        silent_ms=silent_ms,
        limit=limit,
    )
    return sorted(gone.scalars())


def acquire_lock(db: Db, name: str, owner: str, ttl_ms: int) -> Lock | None:
    """Take a lock that is free, run out, or the owner's own already."""
    check_lock(name, owner, ttl_ms)
    db.connection.execute(
        db.dialect.insert_or_ignore(db.tables.locks),
        {"name": name, "owner": None, "fence": 0, "locked_until_ms": 0, "updated_at_ms": 0},
    )
    rows = db.run(
        "UPDATE {p}locks SET fence = CASE WHEN owner = :owner AND locked_until_ms > {now} "
        "THEN fence ELSE fence + 1 END, owner = :owner, locked_until_ms = {now} + :ttl_ms, "
        "updated_at_ms = {now} WHERE name = :name AND (owner IS NULL OR owner = :owner "
        "OR locked_until_ms <= {now}) RETURNING name, owner, fence, locked_until_ms",
        name=name,
        owner=owner,
        ttl_ms=ttl_ms,
    ).all()
    return Lock._make(rows[0]) if rows else None


def extend_lock(db: Db, name: str, owner: str, ttl_ms: int) -> Lock | None:
    """Hold a lock for longer."""
    check_lock(name, owner, ttl_ms)
    rows = db.run(
        "UPDATE {p}locks SET locked_until_ms = {now} + :ttl_ms, updated_at_ms = {now} "
        "WHERE name = :name AND owner = :owner AND locked_until_ms > {now} "
        "RETURNING name, owner, fence, locked_until_ms",
        name=name,
        owner=owner,
        ttl_ms=ttl_ms,
    ).all()
    return Lock._make(rows[0]) if rows else None


def release_lock(db: Db, name: str, owner: str) -> bool:
    """Give a lock back; the row stays, so that its fence goes on growing."""
    released = db.run(
        "UPDATE {p}locks SET owner = NULL, locked_until_ms = 0, updated_at_ms = {now} "
        "WHERE name = :name AND owner = :owner AND locked_until_ms > {now}",
        name=name,
        owner=owner,
    )
    return released.rowcount > 0


def list_locks(db: Db, name: str | None = None, *, after: str = "", limit: int = 100) -> list[Lock]:
    """Locks that somebody holds, by name; the rows of free ones are passed over."""
    check_limit(limit)
    named = "name > :name" if name is None else "name = :name"
    rows = db.run(
        f"SELECT name, owner, fence, locked_until_ms FROM {{p}}locks WHERE {named} "
        "AND owner IS NOT NULL AND locked_until_ms > {now} ORDER BY name LIMIT :limit",
        name=after if name is None else name,
        limit=limit,
    )
    return [Lock._make(row) for row in rows]
