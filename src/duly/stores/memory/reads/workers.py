"""Reads of workers and of the work waiting for them in the memory store."""

from __future__ import annotations

from duly.model.jobs import JobState
from duly.model.queues import WaitingWork, WorkerInfo
from duly.rules.checks import check_limit
from duly.rules.line_counts import LineCount, works_of
from duly.stores.memory.tables import Tables


def page(tables: Tables, limit: int) -> list[WorkerInfo]:
    """Return workers by id."""
    check_limit(limit)
    return [tables.workers[each] for each in sorted(tables.workers)[:limit]]


def count_line(tables: Tables, look: int, limit: int) -> list[WaitingWork]:
    """Count queued jobs by queue and action at the head of each queue."""
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
