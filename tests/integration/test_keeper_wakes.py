"""When a keeper wakes: at the next lease end, and rarely while leases are renewed in time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from duly.app import Duly
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobState, WorkerId
from duly.runtime import KeeperOptions
from duly.runtime.keeper import SOONEST_S, SPREAD_S
from duly.testing.simulation.loop import VirtualClock, VirtualLoop
from tests.integration.working import Watched, enqueue, in_loop, open_app, working

DEAD = WorkerId("worker_dead")
START = datetime(2026, 3, 1, tzinfo=UTC)
LATEST_MS = int((SOONEST_S + SPREAD_S) * 1000)
"""The longest time between the end of a lease and the wake-up of a keeper."""


class Handlers:
    """`work.hold` waits for an event, `work.linger` for a number of seconds."""

    def __init__(self) -> None:
        self.flow = Flow("work")
        self.go = asyncio.Event()

        @self.flow.action(timeout_s=3_600)
        async def hold() -> None:
            await self.go.wait()

        @self.flow.action
        async def linger(seconds: float) -> None:
            await asyncio.sleep(seconds)


@asynccontextmanager
async def keeping(app: Duly, period_s: float) -> AsyncIterator[None]:
    keeper = app.keeper(KeeperOptions(period_s=period_s))
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        keeper.stop()
        await task


def in_virtual_time(act: Callable[[Duly, Watched, Handlers], Awaitable[None]]) -> None:
    """Run a test with an application on an event loop with virtual time."""
    loop = VirtualLoop()

    async def run() -> None:
        handlers = Handlers()
        app, store = open_app("memory:", handlers.flow, clock=VirtualClock(START, loop))
        async with app:
            await act(app, store, handlers)

    loop.run(run())


async def let_pass(seconds: float) -> None:
    """Advance virtual time; the loop jumps ahead."""
    await asyncio.sleep(seconds)


@pytest.mark.parametrize("lease_s", [1.5, 9.0, 29.0])
def test_jobs_of_a_dead_worker_are_rescued_while_others_are_busy(lease_s: float) -> None:
    """No worker claims, so only the keeper can find them, and it does so within its period."""

    async def act(app: Duly, store: Watched, handlers: Handlers) -> None:
        await enqueue(app, "work.hold", [None] * 20)
        async with working(app, lease_s=lease_s, block_limit_s=0):
            await let_pass(5)  # its slots and its buffer are full now
            request = ClaimRequest(worker=DEAD, lease_ms=int(lease_s * 1000))
            lost = await store.claim_jobs(request)
            claims = store.count("claim_jobs")
            async with keeping(app, 60):
                await store.ended(*[job.id for job in lost.jobs], states={JobState.QUEUED})
            assert store.count("claim_jobs") == claims, "no worker took part"
            for job in lost.jobs:
                event = (await store.job_events(job.id))[-1]
                late_ms = event.at_ms - lost.now_ms - request.lease_ms
                assert 0 <= late_ms <= LATEST_MS, event
            handlers.go.set()

    in_virtual_time(act)


def test_renewed_leases_rarely_wake_a_keeper() -> None:
    """Holds for any number of workers and jobs, as each lease has at least two thirds left."""
    minutes, lease_s = 2, 6.0

    async def act(app: Duly, store: Watched, handlers: Handlers) -> None:
        await enqueue(app, "work.hold", [None] * 4)
        await enqueue(app, "work.linger", [1.0] * 2_500)
        options = {"slots": 8, "lease_s": lease_s, "block_limit_s": 0}
        async with working(app, **options), working(app, **options), working(app, **options):
            await let_pass(10)
            looks, sweeps = store.count("next_lease_end"), store.count("release_expired")
            async with keeping(app, 60):
                await let_pass(minutes * 60)
            assert store.count("renew") >= 2 * minutes * 60 / (lease_s / 3)
            assert store.count("finish") > minutes * 30
            assert store.count("next_lease_end") - looks <= minutes * 60 / lease_s * 1.5 + 1
            assert store.count("release_expired") - sweeps <= minutes + 1, "each period"
            handlers.go.set()

    in_virtual_time(act)


def test_an_idle_keeper_looks_once_in_a_period() -> None:
    async def act(app: Duly, store: Watched, _: Handlers) -> None:
        async with keeping(app, 10):
            await let_pass(600.5)
        assert store.count("next_lease_end") == 61

    in_virtual_time(act)


def test_a_lease_that_cannot_be_released_does_not_keep_a_keeper_busy() -> None:
    """Another transaction may have locked it."""

    async def act(app: Duly, store: Watched, _: Handlers) -> None:
        await enqueue(app, "work.hold", [None])
        await store.claim_jobs(ClaimRequest(worker=DEAD, lease_ms=1_000))

        async def release_nothing(_limit: int = 1_000) -> int:
            return 0

        cast(Any, store.store).release_expired = release_nothing
        async with keeping(app, 10):
            await let_pass(60)
        assert store.count("release_expired") <= 60 / SOONEST_S

    in_virtual_time(act)


@in_loop
async def test_every_store_knows_the_next_lease_end(any_url: str) -> None:
    handlers = Handlers()
    app, store = open_app(any_url, handlers.flow)
    async with app:
        ids = await enqueue(app, "work.hold", [None] * 3)
        await store.claim_jobs(ClaimRequest(worker=DEAD, lease_ms=300))
        async with keeping(app, 3_600):
            await store.ended(*ids, states={JobState.QUEUED})
        assert store.count("claim_jobs") == 1
