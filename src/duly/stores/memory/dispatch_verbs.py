"""The memory store: the verbs of hand-over by HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from duly.dispatch_store import (
    DispatchAnswer,
    DispatchClaim,
    Dispatching,
    Fire,
    FireAnswer,
)
from duly.stores.memory import dispatches, fires
from duly.stores.memory.job_verbs import JobVerbs


class DispatchVerbs(JobVerbs):
    """What a tick and an endpoint ask."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Take due rows of hand-over `http` and posts whose lease or delay has ended."""
        with self._transaction() as (tables, now_ms):
            return dispatches.claim(tables, now_ms, claim, self._planning)

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Store how posts ended; gives how many stood under the claim."""
        with self._transaction() as (tables, now_ms):
            return dispatches.end(tables, now_ms, claim_id, answers)

    async def fire(self, request: Fire) -> FireAnswer:
        """Move an occurrence to `fired` and make its job."""
        with self._transaction() as (tables, now_ms):
            return fires.fire(tables, now_ms, request)
