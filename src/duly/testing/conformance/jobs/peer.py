"""The peer process of the job and planning suites: duly.testing.peer with more verbs.

Run as `python -m duly.testing.conformance.jobs.peer module:open_store URL`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from duly.model.claims import ClaimRequest, Claims
from duly.model.plans import PlanRequest
from duly.rules import planning
from duly.rules.outcomes import Succeeded, decide
from duly.rules.planning import Plan, Plannable
from duly.stores.port import Store
from duly.testing import peer

PLANNING = "planning"
"""Line sent between reading due rows and writing the plan, after `hold_plans`."""


async def claim_jobs(store: Store, **arguments: Any) -> list[str]:
    """Return the job ids of one claim."""
    return [job.id for job in (await store.claim_jobs(ClaimRequest(**arguments))).jobs]


async def work(store: Store, **arguments: Any) -> list[str]:
    """Claim and finish jobs until none is left; return the finished ids."""
    request = ClaimRequest(**arguments)
    done: list[str] = []
    while (claims := await store.claim_jobs(request)).jobs:
        void = await store.finish([decide(job, Succeeded()) for job in claims.jobs])
        done += [job.id for job in claims.jobs if job.id not in void]
        await give_back(store, request, claims)
    return done


async def plan(store: Store, **arguments: Any) -> int:
    """Plan until nothing is due; return the number of planned occurrences."""
    request, made = PlanRequest(**arguments), 0
    while (report := await store.plan_occurrences(request)).rows:
        made += report.planned
    return made


async def hold_plans(store: Store) -> str:  # noqa: ARG001
    """Make each plan stop between its read and its write until an input line arrives."""
    original = planning.plan_many

    def held(rows: Sequence[Plannable], now_ms: int, until_ms: int) -> list[Plan]:
        peer.say(PLANNING)
        sys.stdin.readline()
        return original(rows, now_ms, until_ms)

    for module in list(sys.modules.values()):
        if getattr(module, "plan_many", None) is original:
            module.plan_many = held  # type: ignore[attr-defined]
    return "holding"


async def give_back(store: Store, request: ClaimRequest, claims: Claims) -> None:
    """Release the tokens of a claim whose jobs have all finished."""
    held = {token for tokens in claims.holds.values() for token in tokens}
    if held:
        await store.release_tokens(request.worker, sorted(held))


if __name__ == "__main__":
    peer.VERBS |= {
        "claim_jobs": claim_jobs,
        "hold_plans": hold_plans,
        "plan": plan,
        "work": work,
    }
    peer.main(*sys.argv[1:])
