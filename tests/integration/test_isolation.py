"""Suspect jobs run in child processes, so a crash is charged to exactly the job that caused it."""

import asyncio
import os
from collections.abc import Iterator
from typing import cast

import pytest

from duly.app import Duly
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, JobState, StartMode, WorkerId
from duly.model.stored_jobs import JobFilter
from duly.rules.outcomes import Released, decide
from duly.runtime.worker import isolation
from duly.runtime.worker.isolation import Location, find_location
from duly.stores.port import Store
from tests.integration import isolated_app
from tests.integration.working import Watched, enqueue, in_loop, open_app, working

EARLIER = WorkerId("worker_earlier")


pytestmark = pytest.mark.parametrize("any_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def app(any_url: str) -> Iterator[Duly]:
    app = isolated_app.app
    app.url, before = any_url, app.url
    yield app
    app.url = before


def watched(app: Duly) -> Watched:
    store = Watched(app.store)
    app._opened = cast(Store, store)
    app.__dict__.pop("client", None)
    return store


async def suspects(app: Duly, action: str, number: int = 1, **options: object) -> list[JobId]:
    """Enqueue jobs that are known to have been running when a worker died."""
    ids = await enqueue(app, action, [None] * number, **options)
    claims = await app.store.claim_jobs(ClaimRequest(EARLIER, limit=number))
    given_back = [decide(job, Released())._replace(isolate=True) for job in claims.jobs]
    assert await app.store.finish(given_back) == []
    return ids


@in_loop
async def test_a_suspect_runs_in_a_child(app: Duly) -> None:
    async with app:
        store = watched(app)
        (first,) = await suspects(app, "work.where")
        async with working(app):
            (job,) = await store.ended(first, states={JobState.SUCCEEDED})
            (other,) = await store.ended(*await made(app))
    assert job.result is not None
    assert other.result is not None
    assert int(job.result) != os.getpid() == int(other.result)
    assert job.progress == '{"percent":50,"message":"half"}'
    assert (job.attempts, job.start_mode) == (1, StartMode.ISOLATED)


async def made(app: Duly) -> list[JobId]:
    """Return the jobs that `work.where` has enqueued."""
    found = await app.store.list_jobs(JobFilter(action="work.second"))
    return [job.id for job in found]


@pytest.mark.parametrize(
    ("action", "how"), [("kill", "killed by SIGKILL"), ("leave", "exit status 3")]
)
@in_loop
async def test_only_the_job_that_kills_its_child_dies(app: Duly, action: str, how: str) -> None:
    async with app:
        store = watched(app)
        poison = await suspects(app, f"work.{action}", 2)
        innocent = await suspects(app, "work.second", 6, retry=isolated_app.TWICE)
        async with working(app, slots=4, isolated=2):
            for job in await store.ended(*poison, states={JobState.DEAD}):
                assert (job.attempts, job.error) == (2, f"its process died: {how}")
            for job in await store.ended(*innocent, states={JobState.SUCCEEDED}):
                assert job.attempts == 1


@in_loop
async def test_children_are_reused(app: Duly) -> None:
    async with app:
        store = watched(app)
        ids = await suspects(app, "work.second", 10)
        async with working(app, slots=4, isolated=2):
            jobs = await store.ended(*ids, states={JobState.SUCCEEDED})
    assert 1 <= len({job.result for job in jobs}) <= 2


@in_loop
async def test_a_suspect_is_cancelled_in_its_child(app: Duly) -> None:
    async with app:
        store = watched(app)
        (job_id,) = await suspects(app, "work.linger")
        async with working(app, progress_s=0.01):
            await store.until("note_progress")
            await app.client.cancel(job_id)
            await store.ended(job_id, states={JobState.CANCELLED})


@in_loop
async def test_a_child_that_blocks_is_killed_after_the_timeout(
    app: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "GRACE_S", 0.1)
    async with app:
        store = watched(app)
        (job_id,) = await suspects(app, "work.block")
        async with working(app):
            (job,) = await store.ended(job_id, states={JobState.DEAD})
    assert (job.attempts, job.error) == (2, "timed out after 0.3 s")


@in_loop
async def test_an_application_that_cannot_be_imported_runs_suspects_one_by_one(
    any_url: str,
) -> None:
    flow = Flow("work")
    running = most = 0

    @flow.action
    async def alone(ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    app, store = open_app(any_url, flow)
    assert find_location(app) is None
    async with app:
        ids = await suspects(app, "work.alone", 8)
        async with working(app, slots=4):
            for job in await store.ended(*ids, states={JobState.SUCCEEDED}):
                assert job.attempts == 1
    assert most == 1


def test_an_application_is_found_in_its_module(app: Duly) -> None:
    assert find_location(app) == Location("tests.integration.isolated_app", "app")
