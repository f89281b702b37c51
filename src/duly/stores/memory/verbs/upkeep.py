"""Verbs of the memory store for upkeep."""

from __future__ import annotations

from duly.engine.upkeep import erasure, zones
from duly.engine.upkeep import retention as retention_cases
from duly.model.ledger_counts import MAX_CHANGES
from duly.model.upkeep import (
    MAX_ZONED,
    Erased,
    LedgerPruned,
    LedgerRetention,
    Recomputed,
    SchedulesPruned,
)
from duly.rules.checks import check_limit
from duly.stores.memory.verbs.jobs import JobVerbs


class UpkeepVerbs(JobVerbs):
    """Every verb of UpkeepStore."""

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        """Remove an owner's data, one step at a time."""
        return self._transact(erasure.erase, scope, cursor=cursor, limit=limit)

    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        """Remove closed occurrences, schedule events and audit entries past retention."""
        return self._transact(retention_cases.prune_ledger, retention, limit, cursor)

    async def fold_counts(self, limit: int = 10_000) -> int:
        """Do nothing and return 0: count_occurrences() counts the ledger itself."""
        check_limit(limit, MAX_CHANGES)
        return 0

    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        """Delete finished schedules that are past retention or have `delete_after_completion`."""
        return self._transact(retention_cases.prune_schedules, retention, limit, cursor)

    async def zone_rules(self) -> str | None:
        """Return the time-zone version that all next times were computed with; None: unknown."""
        return self._transact(zones.zone_rules)

    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        """Recompute rows whose next time differs under this process's time-zone rules."""
        return self._transact(zones.recompute_zones, rules, limit=limit, cursor=cursor)
