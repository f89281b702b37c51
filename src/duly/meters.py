"""What this process has done since it began, in plain numbers; metrics are made of them.

Takes a store; gives one that counts what its verbs answer and is otherwise the same. So no loop
knows that it is counted, and none can forget to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from duly.job_store import MAX_SWEEP, ClaimRequest, Claims, Enqueued, KeyTaken, Retention
from duly.jobs import JobId, NewJob
from duly.outcomes import Finish
from duly.plan_store import PlanReport, PlanRequest
from duly.store import Store


class Meters:
    """Numbers that only grow."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Attempts by how they ended."""

    def of(self, store: Store) -> Store:
        """The same store, counted."""
        return cast(Store, _Counted(store, self))


class _Counted:
    """Passes everything on; what loops call is counted on its way back."""

    def __init__(self, store: Store, meters: Meters) -> None:
        self._counted = store
        self._meters = meters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._counted, name)

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        answers = await self._counted.insert_jobs(jobs)
        created = sum(isinstance(each, Enqueued) and each.created for each in answers)
        self._meters.counts["enqueued"] += created
        return answers

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        report = await self._counted.plan_occurrences(request)
        counts = self._meters.counts
        counts["plans"] += 1
        for name in ("planned", "missed", "finished", "quarantined"):
            counts[name] += getattr(report, name)
        return report

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        claims = await self._counted.claim_jobs(request)
        self._meters.counts["claimed"] += len(claims.jobs)
        return claims

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        refused = await self._counted.finish(finishes)
        void = set(refused)
        self._meters.ended.update(each.status for each in finishes if each.job_id not in void)
        self._meters.counts["dead"] += sum(
            each.state == "dead" and each.job_id not in void for each in finishes
        )
        self._meters.counts["refused"] += len(refused)
        return refused

    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        moved = await self._counted.release_expired(limit)
        self._meters.counts["rescued"] += moved
        return moved

    async def promote_due(self, limit: int = MAX_SWEEP) -> int:
        moved = await self._counted.promote_due(limit)
        self._meters.counts["promoted"] += moved
        return moved

    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        removed = await self._counted.prune(retention, limit)
        self._meters.counts["pruned"] += removed
        return removed
