"""Worker registration and heartbeats, and queue settings."""

from __future__ import annotations

from dataclasses import replace

from duly.engine.kinds import QUEUE, SILENCE, WORKER
from duly.engine.transaction import Tx
from duly.model.jobs import ALL_QUEUES, WorkerId
from duly.model.queues import QueueSettings, WorkerInfo
from duly.rules.checks import check_limit, check_queue_settings


def set_queue(tx: Tx, settings: QueueSettings) -> None:
    """Store the settings of a queue, or of all queues (ALL_QUEUES)."""
    check_queue_settings(settings)
    tx.get(QUEUE, settings.queue)
    tx.put(QUEUE, settings)
    tx.tell("queue:*" if settings.queue == ALL_QUEUES else f"queue:{settings.queue}")


def beat(tx: Tx, worker: WorkerInfo) -> None:
    """Register a worker, or record its heartbeat."""
    earlier = tx.get(WORKER, worker.id)
    started_at_ms = tx.now_ms if earlier is None else earlier.started_at_ms
    tx.put(WORKER, replace(worker, started_at_ms=started_at_ms, beat_at_ms=tx.now_ms))


def remove_worker(tx: Tx, worker: WorkerId) -> None:
    """Remove a worker from the list; absent is fine."""
    tx.get(WORKER, worker)
    tx.delete(WORKER, worker)


def remove_silent_workers(tx: Tx, silent_ms: int, limit: int = 100) -> list[WorkerId]:
    """Remove workers without a heartbeat for `silent_ms`; return their ids."""
    check_limit(limit)
    before_ms = tx.now_ms - silent_ms
    found = tx.get_many(WORKER, tx.find(SILENCE, upto=(before_ms,), limit=limit))
    silent = sorted(each.id for each in found.values() if each.beat_at_ms <= before_ms)
    for worker in silent:
        tx.delete(WORKER, worker)
    return silent
