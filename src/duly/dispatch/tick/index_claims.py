"""Claims of a tick from an index of the application's own.

The index advances a row before it returns it and keeps no lease, so every occurrence is posted at
most once: a post that fails is logged and dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from duly.model.dispatches import DispatchAnswer, DispatchClaim, Dispatching
from duly.model.index_rows import Claimed
from duly.stores.port import ScheduleIndex

log = logging.getLogger(__name__)


class IndexClaims:
    """The store calls of a tick, implemented with a ScheduleIndex."""

    def __init__(self, index: ScheduleIndex) -> None:
        self._index = index

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Claim due rows of the flows, one flow after another, up to the limit."""
        found: list[Claimed] = []
        for number, flow in enumerate(claim.flows or (None,)):
            if len(found) < claim.limit:
                # Each call has an id of its own: the same id would return the same rows again.
                claim_id = f"{claim.claim_id}:{number}"
                limit = claim.limit - len(found)
                found += await self._index.claim_due(limit=limit, flow=flow, claim_id=claim_id)
        return [_to_post(each, claim.lease_ms) for each in found]

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Log the posts that failed; the index has nothing to store."""
        for answer in answers:
            if answer.end != "closed":
                told = {
                    "event": "tick.dropped",
                    "claim_id": claim_id,
                    "schedule_id": answer.schedule_id,
                    "nominal_ms": answer.nominal_ms,
                }
                log.warning("tick: dropped a post: %s", answer.reason, extra=told)
        return len(answers)


def _to_post(claimed: Claimed, lease_ms: int) -> Dispatching:
    return Dispatching(
        claimed.schedule_id,
        claimed.flow,
        claimed.scope,
        claimed.name,
        claimed.nominal_ms,
        claimed.run_at_ms,
        tries=1,
        delivery="at_most_once",
        lease_until_ms=claimed.run_at_ms + lease_ms,
    )
