"""Recorded starts, and the effect of a lost worker with and without one (ADR 0027)."""

from __future__ import annotations

from duly.model.claims import Renewed
from duly.model.jobs import JobId, JobState, StartMode
from duly.rules.outcomes import LEASE_EXPIRED, Failed, Released, Succeeded, decide
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ADA,
    BOB,
    LEASE_MS,
    a_job,
    claim_one,
    claimed,
    claims,
    insert,
    path,
    the_job,
    tries,
)
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")


class StartCases(StoreConformance):
    """Cases for start_jobs(), and for release_expired() after it."""

    @case
    async def test_start_is_charged_once(self, store: Store) -> None:
        await insert(store, a_job(delivery="at_most_once"))
        await claim_one(store)
        assert (await the_job(store)).unstarted == 1
        for _ in range(2):  # repeated, as after a lost answer
            assert await store.start_jobs(ADA, [(A, 1)]) == Renewed([], [])
            job = await the_job(store)
            assert (job.attempts, job.unstarted) == (1, None)

    @case
    async def test_void_starts_are_refused(self, store: Store, clock: ManualClock) -> None:
        await insert(store, *(a_job(name, delivery="at_most_once") for name in "abc"))
        assert len((await claims(store)).jobs) == 3
        await store.cancel_job(JobId("b"))
        leases = [(A, 1), (JobId("b"), 1), (JobId("c"), 9), (JobId("nobody"), 1)]
        lost, cancel = await store.start_jobs(ADA, leases)
        assert (lost, cancel) == (["c", "nobody"], ["b"])
        assert [(await the_job(store, name)).attempts for name in "abc"] == [1, 0, 0]
        assert (await store.start_jobs(BOB, [(A, 1)])).lost == [A]
        assert await store.start_jobs(ADA, []) == Renewed([], [])
        clock.advance(milliseconds=LEASE_MS)
        await store.release_expired()
        assert (await store.start_jobs(ADA, [(A, 1)])).lost == [A]

    @case
    async def test_ordinary_starts_change_nothing(self, store: Store) -> None:
        await insert(store, a_job())
        await claim_one(store)
        assert await store.start_jobs(ADA, [(A, 1)]) == Renewed([], [])
        assert (await the_job(store)).attempts == 0

    @case
    async def test_lost_before_its_start_is_queued_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A job lost before its start is queued again uncharged, however often that happens."""
        await insert(store, a_job("a", delivery="at_most_once"), a_job("b"))
        for number in range(4):
            assert await claimed(store) == ["a", "b"]
            clock.advance(milliseconds=LEASE_MS)
            assert await store.release_expired() == 2
            once, plain = await the_job(store, "a"), await the_job(store, "b")
            assert (once.start_mode, plain.start_mode) == (StartMode.ONCE, StartMode.RECORDED)
            assert (once.attempts, plain.attempts, once.fence) == (0, 0, number + 1)

    @case
    async def test_at_most_once_lost_after_its_start_is_dead(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job(delivery="at_most_once"))
        await claim_one(store)
        await store.start_jobs(ADA, [(A, 1)])
        clock.advance(milliseconds=LEASE_MS)
        assert await store.release_expired() == 1
        assert await path(store) == ["queued", "processing", "failed", "dead"]
        assert await claimed(store) == []

    @case
    async def test_retried_at_most_once_is_started_once_more(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job(delivery="at_most_once"))
        for number, reset in enumerate((True, False), 1):
            await claim_one(store)
            await store.start_jobs(ADA, [(A, number)])
            clock.advance(milliseconds=LEASE_MS)
            assert await store.release_expired() == 1
            assert (await the_job(store)).state is JobState.DEAD
            await store.retry_job(A, reset_attempts=reset)

    @case
    async def test_suspects_are_those_that_had_begun(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job("a"), a_job("b"))
        for _ in range(2):
            assert await claimed(store) == ["a", "b"]
            started = await store.start_jobs(ADA, [(A, 1), (A, 2)])
            assert started.lost in ([A], [])
            clock.advance(milliseconds=LEASE_MS)
            await store.release_expired()
        first, second = await the_job(store, "a"), await the_job(store, "b")
        assert (first.start_mode, first.attempts) == (StartMode.ISOLATED, 0)
        assert (second.start_mode, second.attempts) == (StartMode.RECORDED, 0)

    @case
    async def test_poison_dies_at_the_cap(self, store: Store, clock: ManualClock) -> None:
        """A job whose workers keep dying is isolated after two losses and dies at its limit."""
        await insert(store, a_job())
        charged = []
        while (answer := await claims(store)).jobs:
            (job,) = answer.jobs
            await store.start_jobs(ADA, [(A, job.fence)])
            charged.append((await the_job(store)).attempts)
            clock.advance(milliseconds=LEASE_MS)
        assert charged == [0, 1, 1, 2, 3]
        job_then = await the_job(store)
        assert (job_then.state, job_then.attempts) == (JobState.DEAD, 3)
        assert job_then.error == LEASE_EXPIRED
        assert (await path(store))[-3:] == ["processing", "failed", "dead"]
        assert await tries(store) == [(each, "lost") for each in range(1, 6)]

    @case
    async def test_completions_charge_what_the_start_did_not(self, store: Store) -> None:
        await insert(store, *(a_job(name, delivery="at_most_once") for name in "abcd"))
        jobs = (await claims(store)).jobs
        started, released, back, ended = jobs
        await store.start_jobs(ADA, [(job.id, 1) for job in (started, back)])
        ends = [
            decide(started, Succeeded(), is_charged=True),
            decide(released, Released()),
            decide(back, Released(), is_charged=True),
            decide(ended, Succeeded()),
        ]
        assert await store.finish(ends) == []
        assert [(await the_job(store, name)).attempts for name in "abcd"] == [1, 0, 0, 1]

    @case
    async def test_handler_that_stopped_its_worker_is_isolated(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b", delivery="at_most_once"), a_job("c"))
        ends = [
            decide(job, Failed("blocked"))._replace(isolate=job.id != "c")
            for job in (await claims(store)).jobs
        ]
        assert await store.finish(ends) == []
        modes = [(await the_job(store, name)).start_mode for name in "abc"]
        assert modes == [StartMode.ISOLATED, StartMode.ONCE, StartMode.AHEAD]
