"""The upkeep verbs of the async port."""

from __future__ import annotations

from duly.engine.upkeep import erasure, zones
from duly.engine.upkeep import retention as retention_cases
from duly.model.upkeep import (
    MAX_ZONED,
    Erased,
    LedgerPruned,
    LedgerRetention,
    Recomputed,
    SchedulesPruned,
)
from duly.stores.sql.reads import ledger_counts
from duly.stores.sql.transactions import Transactions


class UpkeepVerbs(Transactions):
    """The upkeep verbs on one relational database."""

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        """Remove the data of an owner."""
        return await self._transact_upkeep(erasure.erase, scope, cursor=cursor, limit=limit)

    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        """Remove occurrences, events and audit entries past their retention."""
        return await self._transact_upkeep(retention_cases.prune_ledger, retention, limit, cursor)

    async def fold_counts(self, limit: int = 10_000) -> int:
        """Merge the counter rows that count_occurrences() reads."""
        return await self._run_upkeep(ledger_counts.fold_counts, limit)

    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        """Delete finished schedules past their retention."""
        case = retention_cases.prune_schedules
        return await self._transact_upkeep(case, retention, limit, cursor)

    async def zone_rules(self) -> str | None:
        """Return the version of the zone rules that all next times were computed with, or None."""
        return await self._transact(zones.zone_rules)

    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        """Move rows whose next time differs under this process's zone rules."""
        case = zones.recompute_zones
        return await self._transact_upkeep(case, rules, limit=limit, cursor=cursor)
