"""Verbs of the memory store for hand-over by HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from duly.engine.dispatch import dispatches, fires
from duly.model.dispatches import DispatchAnswer, DispatchClaim, Dispatching, Fire, FireAnswer
from duly.stores.memory.verbs.jobs import JobVerbs


class DispatchVerbs(JobVerbs):
    """Verbs that ticks and endpoints call."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Claim due rows of hand-over `http`, and dispatches whose lease or delay has ended."""
        return self._transact(dispatches.claim_dispatches, claim)

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Store the outcomes of posts; return how many dispatches this claim still held."""
        return self._transact(dispatches.end_dispatches, claim_id, answers)

    async def fire(self, request: Fire) -> FireAnswer:
        """Move an occurrence to `fired` and make its job."""
        return self._transact(fires.fire, request)
