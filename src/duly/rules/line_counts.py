"""Aggregation of counts of waiting jobs, shared by all stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duly.model.queues import WaitingWork
from duly.model.summaries import QueueCount, QueuePlace


class LineCount(NamedTuple):
    """Jobs of one action among the first of a queue."""

    action: str
    jobs: int
    oldest_run_at_ms: int


def works_of(queue: str, counts: Sequence[LineCount], look: int) -> list[WaitingWork]:
    """Return the waiting work of one queue by action."""
    is_capped = sum(each.jobs for each in counts) >= look
    by_action: dict[str, list[LineCount]] = {}
    for each in counts:
        by_action.setdefault(each.action, []).append(each)
    return [
        WaitingWork(
            queue,
            action,
            sum(each.jobs for each in found),
            min(each.oldest_run_at_ms for each in found),
            is_capped,
        )
        for action, found in sorted(by_action.items())
    ]


class AllQueues(NamedTuple):
    """Job counts over all queues, each up to the same limit."""

    waiting: int
    """Scheduled jobs that wait for an earlier run of their schedule."""
    processing: int
    dead: int


def queue_count(found: QueueCount, together: AllQueues, most: int) -> QueueCount:
    """Return the counts of a queue, none above `most`, and which of them are capped."""
    is_capped: dict[QueuePlace, bool] = {
        "queued": found.queued >= most,
        "later": found.later >= most or together.waiting >= most,
        "processing": together.processing >= most,
        "dead": together.dead >= most,
    }
    capped = tuple(place for place, is_over in is_capped.items() if is_over)
    return found._replace(later=min(found.later, most), capped=capped)
