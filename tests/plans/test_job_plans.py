"""Plans of job verbs: with 30,000 jobs waiting, each examines only the rows it takes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, NewJob, WorkerId
from duly.model.stored_jobs import Retention
from duly.rules.outcomes import Succeeded, decide
from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from tests.plans.explained import BACKENDS, Verb, examined, filled, plans_of, scans

WAITING = 30_000
PAIRS = 50
BATCH = 500
WORKER = WorkerId("worker_plan")
FUTURE_MS = 4_000_000_000_000
JOBS = "duly_jobs"
LINE = "duly_job_line"

REQUEST = ClaimRequest(worker=WORKER, limit=20, actions=("mail.send",))
FAIR = ClaimRequest(worker=WORKER, limit=20, fair=True, tokens=3, token_batch=5)


async def fill(store: SqlStore) -> None:
    """Store jobs that are queued, scheduled, running and ended."""
    for start in range(0, WAITING, 10_000):
        await store.insert_jobs([_job(number) for number in range(start, start + 10_000)])
    later = [_job(WAITING + number, run_at_ms=FUTURE_MS) for number in range(10_000)]
    await store.insert_jobs(later)
    for _ in range(8):
        claims = await store.claim_jobs(ClaimRequest(worker=WORKER, limit=BATCH))
        await store.finish([decide(job, Succeeded()) for job in claims.jobs])
    await store.claim_jobs(ClaimRequest(worker=WORKER, limit=BATCH))


def _job(number: int, **fields: Any) -> NewJob:
    workspace = f"space-{number % PAIRS:03}"
    name = JobId(f"job_{number:09}")
    return NewJob(id=name, action="mail.send", workspace=workspace, **fields)


@pytest.fixture(scope="module", params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from filled(request, tmp_path_factory, fill)


async def _claim_and_finish(store: SqlStore) -> None:
    claims = await store.claim_jobs(REQUEST)
    await store.renew(WORKER, [(job.id, job.fence) for job in claims.jobs], 30_000)
    await store.finish([decide(job, Succeeded()) for job in claims.jobs])


async def _lose(store: SqlStore) -> None:
    await store.claim_jobs(ClaimRequest(worker=WORKER, limit=10, lease_ms=1))
    while not await store.release_expired(10):
        pass


VERBS: dict[str, tuple[Verb, int]] = {
    "claim, renew, finish": (_claim_and_finish, 40),
    "fair claim": (lambda store: store.claim_jobs(FAIR), PAIRS * 2),
    "nothing to claim": (
        lambda store: store.claim_jobs(ClaimRequest(worker=WORKER, queues=("other",))),
        20 * BATCH,  # the jobs of the first completion markers
    ),
    "rescue": (_lose, 20),
    "next lease end": (lambda store: store.next_lease_end(), 20 * BATCH),
    # Jobs that ended in one batch are ordered by id, so the whole batch is read.
    "promote": (lambda store: store.promote_due(10), 20),
    "prune": (lambda store: store.prune(Retention(succeeded_ms=0), 10), BATCH + 20),
    "one job": (lambda store: store.get_job(JobId("job_000000001")), 1),
}


@pytest.mark.parametrize("limit", [20, 2_000])
def test_claims_follow_the_line_before_it_is_analysed(postgres_url: str, limit: int) -> None:
    async def insert() -> None:
        store = open_store(postgres_url)
        for start in range(0, 4 * WAITING, 10_000):
            await store.insert_jobs([_job(number) for number in range(start, start + 10_000)])
        await store.close()

    asyncio.run(insert())
    request = dataclasses.replace(REQUEST, limit=limit)
    plans = plans_of(postgres_url, lambda store: store.claim_jobs(request), LINE)
    assert plans
    for plan in plans:
        assert examined(plan, LINE) <= 2 * limit, plan


@pytest.mark.parametrize("name", VERBS)
def test_verbs_examine_what_they_take(url: str, name: str) -> None:
    verb, most = VERBS[name]
    plans = plans_of(url, verb, JOBS)
    assert plans
    for plan in plans:
        assert scans(plan, "duly_queues", "duly_queue_tokens") == [], plan
        assert examined(plan, JOBS) <= most, plan
