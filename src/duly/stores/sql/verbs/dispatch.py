"""The verbs of the async port for hand-over by HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from duly.engine.dispatch import dispatches as dispatch_cases
from duly.engine.dispatch import fires as fire_cases
from duly.model.dispatches import DispatchAnswer, DispatchClaim, Dispatching, Fire, FireAnswer
from duly.stores.sql.verbs.jobs import JobVerbs


class DispatchVerbs(JobVerbs):
    """The dispatch verbs on one relational database, for ticks and endpoints."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Claim due rows of hand-over `http` and posts whose lease or delay has ended."""
        return await self._transact(dispatch_cases.claim_dispatches, claim)

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Store the results of posts; return how many were still held by the claim."""
        return await self._transact(dispatch_cases.end_dispatches, claim_id, answers)

    async def fire(self, request: Fire) -> FireAnswer:
        """Move an occurrence to `fired` and create its job."""
        return await self._transact(fire_cases.fire, request)
