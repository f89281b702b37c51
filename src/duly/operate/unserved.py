"""Find waiting jobs that no live worker would claim.

A worker claims jobs of the queues and actions it registered. Jobs of any other queue or action
stay queued and move to the head of their queue as the rest is claimed, so the first jobs of every
queue are enough to find them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from duly.model.queues import WaitingWork, WorkerInfo
from duly.rules.queue_settings import QueueRules
from duly.stores.port import JobStore

ALIVE_MS = 30_000
"""A worker without a heartbeat for longer is not live."""
MAX_WORKERS = 1_000
LINE_LOOK = 1_000
"""Jobs read per queue: this many ordinary ones, and this many that may not be buffered."""


@dataclass(frozen=True, slots=True)
class Unserved:
    """Waiting jobs of one queue and action that no live worker would claim."""

    queue: str
    action: str
    jobs: int
    """Number of them among the first jobs of the queue."""
    is_capped: bool
    """The queue is longer than what was read, so there may be more."""
    oldest_run_at_ms: int
    is_queue_served: bool
    """Live workers serve the queue, but none of them has the action."""

    def words(self) -> str:
        """Describe it in one clause."""
        noun = "job" if self.jobs == 1 and not self.is_capped else "jobs"
        count = f"{self.jobs:,}{'+' if self.is_capped else ''} {noun}"
        if self.is_queue_served:
            return f"{count} of action {self.action!r} in queue {self.queue!r}"
        return f"{count} in queue {self.queue!r} (action {self.action!r})"


async def look_for_unserved(store: JobStore, alive_ms: int = ALIVE_MS) -> list[Unserved]:
    """Read the head of every queue and the workers; return the work that none of them serves.

    A worker is live if it sent a heartbeat within `alive_ms`.
    """
    line = await store.count_line(LINE_LOOK)
    if not line.works:
        return []
    rules = QueueRules(await store.list_queues())
    paused = {each.queue for each in line.works if rules.of(each.queue).is_paused}
    workers = await store.list_workers(MAX_WORKERS)
    live = [each for each in workers if line.now_ms - each.beat_at_ms <= alive_ms]
    return find_unserved(line.works, live, paused)


def find_unserved(
    works: Sequence[WaitingWork], live: Sequence[WorkerInfo], paused: Collection[str] = ()
) -> list[Unserved]:
    """Return waiting work that none of the live workers claims, longest waiting first.

    A stopping worker claims nothing more. One that registered no actions, as in earlier releases,
    counts as having all of them. Paused queues are skipped: their jobs wait on purpose.
    """
    actions_by_queue: dict[str, set[str] | None] = {}
    for worker in live:
        for queue in () if worker.is_stopping else worker.queues:
            known = actions_by_queue.setdefault(queue, set())
            if known is not None:
                actions_by_queue[queue] = (
                    None if worker.actions is None else known | set(worker.actions)
                )
    found = []
    for work in works:
        is_served = work.queue in actions_by_queue
        known = actions_by_queue.get(work.queue, set())
        if work.queue in paused or (is_served and (known is None or work.action in known)):
            continue
        found.append(
            Unserved(
                work.queue,
                work.action,
                work.jobs,
                work.is_capped,
                work.oldest_run_at_ms,
                is_served,
            )
        )
    return sorted(found, key=lambda each: (each.oldest_run_at_ms, each.queue, each.action))
