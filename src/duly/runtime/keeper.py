"""The keeper: rescue of lost jobs, promotion, retention, and periodic checks.

Releases expired leases, queues jobs that became due, removes ended jobs past their retention and
workers without heartbeats, and warns of jobs that no live worker would claim. Once a day it walks
through the ledger and, after a change of the zone rules, through the index. Every node may run one;
every step is bounded and fenced.
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
from duly.errors import InvalidInput
from duly.model.claims import NextLeaseEnd
from duly.model.stored_jobs import MAX_SWEEP, Retention
from duly.model.upkeep import LedgerPruned, LedgerRetention, Recomputed, SchedulesPruned
from duly.runtime.backoff import STORE_FAILURES, Backoff, Signal
from duly.runtime.table_walks import Walk
from duly.runtime.unserved_log import UnservedLog
from duly.stores.port import JobStore, UpkeepStore

log = logging.getLogger(__name__)

SOONEST_S = 0.2
"""Shortest sleep, in seconds, between two checks for expired leases."""
SPREAD_S = 0.2
"""Largest random addition to a sleep, so that keepers of several nodes do not wake together."""
_ROUNDS = 50
"""Full batches that a step takes before the next step runs."""
_ZONE_STEPS = 10
"""Batches of a zone rules walk in one round: few, so that rescues are not delayed."""


class KeeperStore(JobStore, UpkeepStore, Protocol):
    """The store methods that a keeper needs."""


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    """Options of a keeper."""

    period_s: float = 10.0
    """Seconds between two rounds: release expired leases, promote due jobs, remove workers without
    heartbeats. A lease that expires between two rounds is released when it expires."""
    prune_period_s: float = 60.0
    """Seconds between two removals of ended jobs and finished schedules."""
    silent_worker_s: float = 60.0
    """Seconds without a heartbeat after which a worker is removed."""
    retention: Retention = field(default_factory=Retention)
    """Retention of ended jobs."""
    upkeep_period_s: float = 86_400.0
    """Seconds between two walks through the ledger, and between two checks of the zone rules."""
    ledger: LedgerRetention = field(default_factory=LedgerRetention)
    """Retention of occurrences, schedule events, the audit log and finished schedules."""

    def __post_init__(self) -> None:
        for name in ("period_s", "prune_period_s", "silent_worker_s", "upkeep_period_s"):
            seconds = getattr(self, name)
            if not seconds >= 0:
                raise InvalidInput(f"{name} is {seconds} s; allowed: 0 s or more")


@dataclass(frozen=True, slots=True)
class Kept:
    """The report of one round."""

    rescued: int = 0
    promoted: int = 0
    pruned: int = 0
    silent_workers: int = 0
    occurrences: int = 0
    """Occurrences removed from the ledger."""
    events: int = 0
    """Schedule events removed."""
    moved: int = 0
    """Next times that changed zone rules moved."""
    audit: int = 0
    """Audit entries removed."""
    schedules: int = 0
    """Finished schedules deleted."""


class Keeper:
    """A loop that runs every step once per period, and releases leases as soon as they expire.

    A worker whose slots are busy does not claim, so it does not rescue either. Between two rounds
    the keeper sleeps until the first lease of any running job ends. Leases are renewed after a
    third of their time and so have about two thirds left: while no worker dies, the keeper wakes at
    most three times in two leases, whatever the number of jobs. It does not wake for jobs that
    become due: a claim promotes first, so no job waits for the keeper.
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
        """Stop after the current step."""
        self._stopping.set()

    async def run(self) -> None:
        """Run rounds until stopped."""
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
        """Run one round of everything that is due and return its report."""
        rescued, _ = await self._rescue()
        return await self._keep(rescued)

    async def _keep(self, rescued: int) -> Kept:
        promoted = await self._all(self._store.promote_due)
        silent = await self._store.remove_silent_workers(int(self._options.silent_worker_s * 1000))
        for worker in silent:
            log.warning(
                "worker %s sent no heartbeat", worker, extra={"event": "keeper.silent_worker"}
            )
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
        """Release expired leases; return how many, and when the next one expires."""
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
                "zone rules %s are installed, but this process uses %s; restart it",
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
    """Return how many seconds to sleep until the next check for expired leases."""
    if lease_end.at_ms is None:
        return math.inf
    # A millisecond more, so that the database's clock has passed the time for certain.
    left_s = (lease_end.at_ms - lease_end.now_ms + 1) / 1000
    return max(left_s, SOONEST_S) + random.random() * SPREAD_S  # noqa: S311
