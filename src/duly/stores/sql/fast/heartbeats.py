"""Queue settings, worker heartbeats and named locks."""

from __future__ import annotations

from sqlalchemy import update

from duly.engine.ids import Ids
from duly.engine.jobs import workers as worker_cases
from duly.model.locks import Lock
from duly.model.queues import QueueSettings, WorkerInfo
from duly.rules.checks import check_limit
from duly.stores.sql.db import Db
from duly.stores.sql.items.around import WORKERS, queue_of, worker_of
from duly.stores.sql.source import transact


def beat(db: Db, worker: WorkerInfo) -> None:
    """Record the heartbeat of a worker; the engine registers unknown workers."""
    values = WORKERS.values(worker)
    changed = {name: values[name] for name in values if name not in ("id", "started_at_ms")}
    table = db.tables.workers
    statement = update(table).where(table.c.id == worker.id)
    found = db.connection.execute(statement.values(changed | {"beat_at_ms": db.clock()}))
    if found.rowcount == 0:
        transact(db, Ids(), worker_cases.beat, worker)


def list_queues(db: Db) -> list[QueueSettings]:
    """Return all configured queues."""
    return [queue_of(row) for row in db.run("SELECT * FROM {p}queues ORDER BY queue")]


def list_workers(db: Db, limit: int = 100) -> list[WorkerInfo]:
    """Return workers by id."""
    check_limit(limit)
    rows = db.run("SELECT * FROM {p}workers ORDER BY id LIMIT :limit", limit=limit)
    return [worker_of(row) for row in rows]


def list_locks(db: Db, name: str | None = None, *, after: str = "", limit: int = 100) -> list[Lock]:
    """Return one page of the held locks by name."""
    check_limit(limit)
    named = "name > :name" if name is None else "name = :name"
    rows = db.run(
        f"SELECT name, owner, fence, locked_until_ms FROM {{p}}locks WHERE {named} "
        "AND owner IS NOT NULL AND locked_until_ms > {now} ORDER BY name LIMIT :limit",
        name=after if name is None else name,
        limit=limit,
    )
    return [Lock._make(row) for row in rows]
