"""The keeper: what time brings, and what time takes away.

Rescues jobs whose lease ended, queues those that became due, removes ended ones kept long enough
and workers that fell silent. Every node may run one; every step is bounded and fenced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from duly.errors import BackendUnavailable
from duly.job_store import MAX_SWEEP, JobStore, Retention
from duly.loops.patience import Backoff, Signal

log = logging.getLogger(__name__)

_ROUNDS = 50
"""Full batches a step takes before the next step has its turn."""


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    """How a keeper keeps."""

    period_s: float = 10.0
    prune_period_s: float = 60.0
    silent_worker_s: float = 60.0
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True)
class Kept:
    """What one round did."""

    rescued: int = 0
    promoted: int = 0
    pruned: int = 0
    silent_workers: int = 0


class Keeper:
    """The loop."""

    def __init__(self, store: JobStore, options: KeeperOptions | None = None) -> None:
        self._store = store
        self._options = KeeperOptions() if options is None else options
        self._stopping = Signal()
        self._next_prune = 0.0

    def stop(self) -> None:
        """End after the current step."""
        self._stopping.set()

    async def run(self) -> None:
        """Keep until stopped."""
        backoff = Backoff()
        pause_s = 0.0
        while not await self._stopping.wait(pause_s):
            try:
                await self.run_once()
                backoff.reset()
                pause_s = self._options.period_s
            except BackendUnavailable as error:
                log.warning("keeper: %s", error, extra={"event": "keeper.unavailable"})
                pause_s = backoff.next()

    async def run_once(self) -> Kept:
        """One round of everything that is due."""
        rescued = await self._all(self._store.release_expired)
        promoted = await self._all(self._store.promote_due)
        silent = await self._store.remove_silent_workers(int(self._options.silent_worker_s * 1000))
        for worker in silent:
            log.warning("worker %s fell silent", worker, extra={"event": "keeper.silent_worker"})
        pruned = 0
        now = asyncio.get_running_loop().time()
        if now >= self._next_prune:
            self._next_prune = now + self._options.prune_period_s
            pruned = await self._all(partial(self._store.prune, self._options.retention))
        return Kept(rescued, promoted, pruned, len(silent))

    async def _all(self, sweep: Callable[[], Awaitable[int]]) -> int:
        total = 0
        for _ in range(_ROUNDS):
            moved = await sweep()
            total += moved
            if moved < MAX_SWEEP:
                break
        return total
