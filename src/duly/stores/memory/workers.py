"""Workers in memory: who they are, and when they last said so."""

from __future__ import annotations

from dataclasses import replace

from duly.job_store import WorkerInfo
from duly.jobs import WorkerId
from duly.stores.checks import check_limit
from duly.stores.memory.tables import Tables


def beat(tables: Tables, now_ms: int, worker: WorkerInfo) -> None:
    """Register a worker, or say that it lives."""
    earlier = tables.workers.get(worker.id)
    started_at_ms = now_ms if earlier is None else earlier.started_at_ms
    tables.workers[worker.id] = replace(worker, started_at_ms=started_at_ms, beat_at_ms=now_ms)


def page(tables: Tables, limit: int) -> list[WorkerInfo]:
    """Workers by id."""
    check_limit(limit)
    return [tables.workers[each] for each in sorted(tables.workers)[:limit]]


def remove_silent(tables: Tables, now_ms: int, silent_ms: int, limit: int) -> list[WorkerId]:
    """Take off the list who has said nothing for so long."""
    check_limit(limit)
    silent = [each.id for each in tables.workers.values() if each.beat_at_ms <= now_ms - silent_ms]
    removed = sorted(silent)[:limit]
    for each in removed:
        del tables.workers[each]
    return removed
