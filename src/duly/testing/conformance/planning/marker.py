"""The running marker: held from queued to the end, then passed to the first job in line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from duly.model.jobs import Job, JobId, LeasedJob
from duly.model.plans import Backfill
from duly.model.schedules import ScheduleId
from duly.rules.outcomes import Cancelled, Failed, Outcome, Released, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.inserts import WAIT_LIMIT_S
from duly.testing.conformance.jobs.samples import (
    ADA,
    LEASE_MS,
    PLAIN,
    claim_one,
    claimed,
    end,
    path,
    reasons,
    the_job,
)
from duly.testing.conformance.planning.samples import (
    jobs_of,
    line,
    next_hour,
    plan,
    put_hourly,
    states,
)
from duly.testing.conformance.samples import HOUR_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case

LONG_MS = 9 * HOUR_MS


async def at_work(store: Store, clock: ManualClock) -> LeasedJob:
    """Return the first run of the hourly schedule, claimed."""
    await put_hourly(store, "buffer_one", retry=PLAIN)
    await next_hour(store, clock)
    return await claim_one(store, lease_ms=LONG_MS)


async def with_a_line(store: Store, clock: ManualClock) -> list[Job]:
    """Return the first run, queued, and the second, in line for the marker."""
    await put_hourly(store, "buffer_one")
    await next_hour(store, clock)
    await next_hour(store, clock)
    assert await line(store) == [("queued", False), ("scheduled", True)]
    return await jobs_of(store)


class MarkerCases(StoreConformance):
    """Cases for the holder of a schedule's marker."""

    @case
    async def test_retries_keep_the_marker(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, retry=PLAIN)
        await next_hour(store, clock)
        await end(store, await claim_one(store), Failed("no luck"))
        assert (await next_hour(store, clock)).skipped == 1
        assert await store.promote_due() == 1
        assert (await next_hour(store, clock)).skipped == 1
        assert await line(store) == [("queued", False)]

    @case
    async def test_given_back_job_keeps_the_marker(self, store: Store, clock: ManualClock) -> None:
        await end(store, await at_work(store, clock), Released())
        await next_hour(store, clock)
        assert await line(store) == [("queued", False), ("scheduled", True)]

    @case
    async def test_rescued_job_keeps_the_marker(self, store: Store, clock: ManualClock) -> None:
        await at_work(store, clock)
        await next_hour(store, clock)
        clock.advance(milliseconds=LONG_MS)
        assert await store.release_expired() == 1
        assert await line(store) == [("queued", False), ("scheduled", True)]

    @case
    async def test_every_end_hands_over(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "buffer_one")
        await next_hour(store, clock)
        ends: list[Outcome] = [Succeeded(), Failed("no", is_final=True), Cancelled(), Succeeded()]
        for outcome in ends:
            job = await claim_one(store, lease_ms=LONG_MS)
            await next_hour(store, clock)
            successor = (await jobs_of(store))[-1]
            assert successor.in_line
            await end(store, job, outcome)
            assert await path(store, successor.id) == ["scheduled", "queued"]
            assert not (await the_job(store, successor.id)).in_line
        assert await states(store) == ["succeeded", "failed", "failed", "succeeded", "planned"]

    @case
    async def test_end_by_loss_hands_over(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "buffer_one", delivery="at_most_once")
        await next_hour(store, clock)
        job = await claim_one(store, lease_ms=LEASE_MS + HOUR_MS)
        await store.start_jobs(ADA, [(job.id, job.fence)])
        await next_hour(store, clock)
        clock.advance(milliseconds=LEASE_MS)
        assert await store.release_expired() == 1
        assert await line(store) == [("dead", False), ("queued", False)]

    @case
    async def test_operators_wishes_hand_over(self, store: Store, clock: ManualClock) -> None:
        requests_: list[tuple[str, Callable[[JobId], Awaitable[object]]]] = [
            ("cancelled", store.cancel_job),
            ("deleted", store.delete_job),
        ]
        first, second = await with_a_line(store, clock)
        await requests_[0][1](first.id)
        assert await line(store) == [("cancelled", False), ("queued", False)]
        await next_hour(store, clock)
        await requests_[1][1](second.id)
        assert await line(store) == [("cancelled", False), ("deleted", False), ("queued", False)]
        assert await states(store) == ["skipped", "skipped", "planned"]

    @case
    async def test_cancelled_retry_hands_over(self, store: Store, clock: ManualClock) -> None:
        job = await at_work(store, clock)
        await next_hour(store, clock)
        await end(store, job, Failed("no luck"))
        await store.cancel_job(job.id)
        assert await line(store) == [("cancelled", False), ("queued", False)]

    @case
    async def test_first_in_line_is_the_oldest(self, store: Store, clock: ManualClock) -> None:
        """Jobs that were planned together get the marker in order of nominal time."""
        await put_hourly(store, "buffer_one")
        clock.advance(minutes=1)
        request = Backfill(ScheduleId("id-a"), START_MS - 4 * HOUR_MS, START_MS)
        assert await store.backfill(request) is not None
        jobs = await jobs_of(store)
        order = []
        for _ in jobs:
            job = await claim_one(store)
            order.append(job.id)
            await end(store, job, Succeeded())
        assert order == [job.id for job in jobs]
        assert len(order) == 4

    @case
    async def test_workers_hear_of_a_hand_over(self, store: Store, clock: ManualClock) -> None:
        if not store.capabilities.notifies:
            pytest.skip("capability notifies is missing: there is nothing to hear")
        job = await at_work(store, clock)
        await next_hour(store, clock)
        heard = threading.Event()

        def wake(hint: str) -> None:
            if hint in ("queue:default", "queue:*"):
                heard.set()

        stop = store.listen(wake)
        await end(store, job, Succeeded())
        assert await asyncio.to_thread(heard.wait, WAIT_LIMIT_S)
        stop()
        assert await claimed(store) == [(await jobs_of(store))[-1].id]

    @case
    async def test_cancelled_in_line_leaves_its_place(
        self, store: Store, clock: ManualClock
    ) -> None:
        first, second = await with_a_line(store, clock)
        await store.cancel_job(second.id, by="ada", reason="not now")
        assert await line(store) == [("queued", False), ("cancelled", False)]
        assert await reasons(store, second.id) == [None, "not now"]
        assert await states(store) == ["planned", "skipped"]
        assert (await next_hour(store, clock)).planned == 1
        await store.cancel_job(first.id)
        assert (await line(store))[-1] == ("queued", False)

    @case
    async def test_operator_may_let_one_in_line_run(self, store: Store, clock: ManualClock) -> None:
        """A job in line that an operator retries runs without the marker, and releases none."""
        first, second = await with_a_line(store, clock)
        await store.retry_job(second.id)
        assert await line(store) == [("queued", False), ("queued", False)]
        await next_hour(store, clock)
        assert (await line(store))[-1] == ("scheduled", True)
        await store.cancel_job(second.id)
        assert (await line(store))[-1] == ("scheduled", True)
        await store.cancel_job(first.id)
        assert (await line(store))[-1] == ("queued", False)

    @case
    async def test_revived_job_takes_a_free_marker(self, store: Store, clock: ManualClock) -> None:
        job = await at_work(store, clock)
        await end(store, job, Failed("no hope", is_final=True))
        await store.retry_job(job.id)
        await next_hour(store, clock)
        assert await line(store) == [("queued", False), ("scheduled", True)]
        await store.cancel_job(job.id)
        assert await line(store) == [("cancelled", False), ("queued", False)]

    @case
    async def test_revived_job_runs_beside_the_holder(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await at_work(store, clock)
        await end(store, job, Failed("no hope", is_final=True))
        await next_hour(store, clock)
        await store.retry_job(job.id)
        await next_hour(store, clock)
        assert await line(store) == [
            ("queued", False),
            ("queued", False),
            ("scheduled", True),
        ]
        await store.cancel_job(job.id)
        assert (await line(store))[-1] == ("scheduled", True)

    @case
    async def test_job_ahead_of_its_time_takes_a_free_marker(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store)
        clock.advance(minutes=30)
        await plan(store, look_ahead_ms=HOUR_MS)
        (job,) = await jobs_of(store)
        await store.retry_job(job.id)
        clock.advance(minutes=30)
        assert (await next_hour(store, clock)).skipped == 1

    @case
    async def test_jobs_without_a_turn_hold_nothing(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "allow")
        await next_hour(store, clock)
        await put_hourly(store, "skip")
        jobs = {job.turn: job.state.value for job in await jobs_of(store)}
        assert jobs == {None: "cancelled", "asks": "queued"}
        assert (await next_hour(store, clock)).skipped == 1
