"""The memory store's half for upkeep: every verb of UpkeepStore."""

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
    """Everything about upkeep; MemoryStore adds the rest."""

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        """Remove what an owner left."""
        return self._transact(erasure.erase, scope, cursor=cursor, limit=limit)

    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        """Remove occurrences and facts kept long enough."""
        return self._transact(retention_cases.prune_ledger, retention, limit, cursor)

    async def fold_counts(self, limit: int = 10_000) -> int:
        """Add up what count_occurrences() reads: nothing here, where the ledger is counted."""
        check_limit(limit, MAX_CHANGES)
        return 0

    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        """Delete finished schedules kept long enough."""
        return self._transact(retention_cases.prune_schedules, retention, limit, cursor)

    async def zone_rules(self) -> str | None:
        """Return the version of the zone rules that all next times are right by."""
        return self._transact(zones.zone_rules)

    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        """Move rows whose next time is another by this process's zone rules."""
        return self._transact(zones.recompute_zones, rules, limit=limit, cursor=cursor)
