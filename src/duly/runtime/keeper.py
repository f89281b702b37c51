"""The keeper: rescue of lost jobs, promotion, retention, and checks that run now and then.

Rescues jobs whose lease ended, queues those that became due, removes ended ones kept long enough
and workers that fell silent, and warns of jobs that no live worker would claim; once a day walks
through the ledger and, after new zone rules, through the index. Every node may run one; every step
is bounded and fenced.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from duly.engine.upkeep.zone_version import is_newer, rules_in_use, rules_on_disk
from duly.model.claims import NextLeaseEnd
from duly.model.stored_jobs import MAX_SWEEP, Retention
from duly.model.upkeep import LedgerPruned, LedgerRetention, Recomputed, SchedulesPruned
from duly.runtime.backoff import STORE_FAILURES, Backoff, Signal
from duly.runtime.table_walks import Walk
from duly.runtime.unserved_log import UnservedLog
from duly.stores.port import JobStore, UpkeepStore

log = logging.getLogger(__name__)

SOONEST_S = 0.2
"""A keeper sleeps at least this long between two looks for leases that have ended."""
SPREAD_S = 0.2
"""A random share of this is added, so that the keepers of several nodes do not wake at once."""
_ROUNDS = 50
"""Full batches a step takes before the next step has its turn."""
_ZONE_STEPS = 10
"""New zone rules move much at once: nobody shall wait for it, rescues least of all."""


class KeeperStore(JobStore, UpkeepStore, Protocol):
    """What a keeper asks of a database."""


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    """How a keeper keeps."""

    period_s: float = 10.0
    """Between two rounds: rescue expired leases, promote due jobs, remove silent workers. Leases
    that end earlier are rescued then."""
    prune_period_s: float = 60.0
    """Between two removals of ended jobs and of finished schedules."""
    silent_worker_s: float = 60.0
    """When a worker that says nothing counts as gone."""
    retention: Retention = field(default_factory=Retention)
    """How long ended jobs stay."""
    upkeep_period_s: float = 86_400.0
    """Between two walks through the ledger, and two looks at the zone rules."""
    ledger: LedgerRetention = field(default_factory=LedgerRetention)
    """How long occurrences, facts about schedules and finished schedules stay."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one round did."""

    rescued: int = 0
    promoted: int = 0
    pruned: int = 0
    silent_workers: int = 0
    occurrences: int = 0
    """Removed from the ledger."""
    events: int = 0
    """Facts about schedules, removed."""
    moved: int = 0
    """Next times that new zone rules moved."""
    audit: int = 0
    """Entries about who did what, removed."""
    schedules: int = 0
    """Finished schedules, deleted."""


class Keeper:
    """Runs everything once in a period, and rescues as soon as a lease has ended.

    A worker whose slots are busy does not claim, so it does not rescue either. Between two rounds
    the keeper sleeps until the first lease of any running job ends. A lease that is renewed at a
    third has about two thirds left or more, so where no worker dies it wakes at most three times
    in two leases, whatever the number of jobs. It does not wake for jobs that become due: a claim
    promotes first, so no job waits for the keeper.
    """

    def __init__(self, store: KeeperStore, options: KeeperOptions | None = None) -> None:
        self._store = store
        self._options = KeeperOptions() if options is None else options
        self._stopping = Signal()
        self._next_prune = 0.0
        period_s = self._options.upkeep_period_s
        self._ledger = Walk(self._prune_ledger, period_s, _ROUNDS)
        self._finished = Walk(self._prune_schedules, self._options.prune_period_s, _ROUNDS)
        self._zones = Walk(self._recompute_zones, period_s, _ZONE_STEPS)
        self._unserved = UnservedLog(store, int(self._options.silent_worker_s * 1000))

    def stop(self) -> None:
        """End after the current step."""
        self._stopping.set()

    async def run(self) -> None:
        """Keep until stopped."""
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        next_round = loop.time()
        pause_s = 0.0
        while not await self._stopping.wait(pause_s):
            try:
                rescued, lease_end = await self._rescue()
                if loop.time() >= next_round:
                    await self._keep(rescued)
                    next_round = loop.time() + self._options.period_s
                backoff.reset()
                pause_s = max(0.0, min(next_round - loop.time(), _until(lease_end)))
            except STORE_FAILURES as error:
                log.warning("keeper: %s", error, extra={"event": "keeper.unavailable"})
                pause_s = backoff.next()

    async def run_once(self) -> Kept:
        """Do one round of everything that is due."""
        rescued, _ = await self._rescue()
        return await self._keep(rescued)

    async def _keep(self, rescued: int) -> Kept:
        promoted = await self._all(self._store.promote_due)
        silent = await self._store.remove_silent_workers(int(self._options.silent_worker_s * 1000))
        for worker in silent:
            log.warning("worker %s fell silent", worker, extra={"event": "keeper.silent_worker"})
        pruned = 0
        now = asyncio.get_running_loop().time()
        await self._unserved.look(now)
        if now >= self._next_prune:
            self._next_prune = now + self._options.prune_period_s
            pruned = await self._all(partial(self._store.prune, self._options.retention))
        await self._fold_counts()
        finished = await self._finished.go_on(now)
        ledger = await self._ledger.go_on(now)
        return Kept(
            rescued,
            promoted,
            pruned,
            len(silent),
            sum(each.occurrences for each in ledger),
            sum(each.events for each in ledger),
            await self._follow_zones(now),
            sum(each.audit for each in ledger),
            sum(each.schedules for each in finished),
        )

    async def _rescue(self) -> tuple[int, NextLeaseEnd]:
        """Release leases that have ended; return how many, and the end of the next one."""
        rescued = 0
        found = await self._store.next_lease_end()
        if found.at_ms is not None and found.at_ms <= found.now_ms:
            rescued = await self._all(self._store.release_expired)
            found = await self._store.next_lease_end()
        return rescued, found

    async def _fold_counts(self) -> None:
        for _ in range(_ROUNDS):
            if not await self._store.fold_counts():
                break

    async def _prune_ledger(self, cursor: str | None) -> LedgerPruned:
        return await self._store.prune_ledger(self._options.ledger, MAX_SWEEP, cursor)

    async def _prune_schedules(self, cursor: str | None) -> SchedulesPruned:
        return await self._store.prune_schedules(self._options.ledger, MAX_SWEEP, cursor)

    async def _recompute_zones(self, cursor: str | None) -> Recomputed:
        if cursor is None and not await self._has_newer_rules():
            return Recomputed()
        return await self._store.recompute_zones(rules_in_use(), cursor=cursor)

    async def _has_newer_rules(self) -> bool:
        mine, disk = rules_in_use(), rules_on_disk()
        if mine != disk:
            log.warning(
                "zone rules %s are installed, but this process goes by %s; restart it",
                disk,
                mine,
                extra={"event": "keeper.old_zone_rules"},
            )
        return is_newer(mine, await self._store.zone_rules())

    async def _follow_zones(self, now: float) -> int:
        steps = await self._zones.go_on(now)
        total = sum(steps, Recomputed())
        if total.moved:
            log.warning(
                "zone rules %s moved the next times of %d schedules, such as %s",
                rules_in_use(),
                total.moved,
                ", ".join(each.schedule_id for each in total.examples),
                extra={"event": "keeper.zones_moved", "moved": total.moved},
            )
        return total.moved

    async def _all(self, sweep: Callable[[], Awaitable[int]]) -> int:
        total = 0
        for _ in range(_ROUNDS):
            moved = await sweep()
            total += moved
            if moved < MAX_SWEEP:
                break
        return total


def _until(lease_end: NextLeaseEnd) -> float:
    """Return how many seconds to sleep until leases are looked at again."""
    if lease_end.at_ms is None:
        return math.inf
    # A millisecond more, so that the database's clock has passed the time for certain.
    left_s = (lease_end.at_ms - lease_end.now_ms + 1) / 1000
    return max(left_s, SOONEST_S) + random.random() * SPREAD_S  # noqa: S311
