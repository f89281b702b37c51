"""The peer process of the tick suite: duly.testing.peer with the verbs of a tick.

Run as `python -m duly.testing.conformance.dispatch.peer module:open_store URL`.
"""

from __future__ import annotations

import sys
from typing import Any

from duly.model.dispatches import DispatchAnswer, DispatchClaim
from duly.stores.port import Store
from duly.testing import peer
from duly.testing.conformance.jobs.peer import hold_plans


async def claim_dispatches(store: Store, **arguments: Any) -> list[str]:
    """Return the schedule names of one claim."""
    return [each.name for each in await store.claim_dispatches(DispatchClaim(**arguments))]


async def post(store: Store, *, claim_id: str, limit: int) -> list[str]:
    """Claim and close dispatches until nothing is due; return their schedule names."""
    names: list[str] = []
    number = 0
    while given := await store.claim_dispatches(DispatchClaim(f"{claim_id}-{number}", limit)):
        answers = [DispatchAnswer(each.schedule_id, each.nominal_ms, "closed") for each in given]
        assert await store.end_dispatches(f"{claim_id}-{number}", answers) == len(given)
        names += [each.name for each in given]
        number += 1
    return names


if __name__ == "__main__":
    peer.VERBS |= {"claim_dispatches": claim_dispatches, "hold_plans": hold_plans, "post": post}
    peer.main(*sys.argv[1:])
