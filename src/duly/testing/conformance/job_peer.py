"""The other process of the job suites: duly.testing.peer, and what it can be asked about jobs.

Run as `python -m duly.testing.conformance.job_peer module:open_store URL`.
"""

from __future__ import annotations

import sys
from typing import Any

from duly.job_store import ClaimRequest, Claims
from duly.outcomes import Succeeded, decide
from duly.store import Store
from duly.testing import peer


async def claim_jobs(store: Store, **arguments: Any) -> list[str]:
    """One claim; gives the ids."""
    return [job.id for job in (await store.claim_jobs(ClaimRequest(**arguments))).jobs]


async def work(store: Store, **arguments: Any) -> list[str]:
    """Claim and finish until nothing is left; gives the ids of what was finished."""
    request = ClaimRequest(**arguments)
    done: list[str] = []
    while (claims := await store.claim_jobs(request)).jobs:
        void = await store.finish([decide(job, Succeeded()) for job in claims.jobs])
        done += [job.id for job in claims.jobs if job.id not in void]
        await give_back(store, request, claims)
    return done


async def give_back(store: Store, request: ClaimRequest, claims: Claims) -> None:
    """Release the tokens of a claim whose jobs have all ended."""
    held = {token for tokens in claims.holds.values() for token in tokens}
    if held:
        await store.release_tokens(request.worker, sorted(held))


if __name__ == "__main__":
    peer.VERBS |= {"claim_jobs": claim_jobs, "work": work}
    peer.main(*sys.argv[1:])
