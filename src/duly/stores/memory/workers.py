"""Workers in memory: who they are, and when they last said so."""

from __future__ import annotations

from dataclasses import replace

from duly.job_store import WaitingWork, WorkerInfo
from duly.jobs import JobState, WorkerId
from duly.stores.checks import check_limit
from duly.stores.line_counts import LineCount, works_of
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


def count_line(tables: Tables, look: int, limit: int) -> list[WaitingWork]:
    """Count queued jobs by queue and action at the head of each line."""
    check_limit(look)
    check_limit(limit)
    waiting = [each for each in tables.jobs.values() if each.job.state is JobState.QUEUED]
    found: list[WaitingWork] = []
    for queue in sorted({each.job.queue for each in waiting})[:limit]:
        line = [each for each in waiting if each.job.queue == queue]
        head = sorted(line, key=lambda each: (each.place, each.job.id))[:look]
        counts = [LineCount(each.job.action, 1, each.job.run_at_ms) for each in head]
        found += works_of(queue, counts, look)
    return found
