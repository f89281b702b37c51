"""Sweeps: expired leases, due jobs, and retention of jobs."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.claims import NextLeaseEnd
from duly.model.events import Attempt, JobEvent
from duly.model.jobs import JobId, JobState, StartMode
from duly.model.stored_jobs import DAY_MS, MAX_SWEEP, JobFilter, Retention
from duly.rules.outcomes import LEASE_EXPIRED, Failed, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ADA,
    LEASE_MS,
    a_job,
    bring_to,
    claim_one,
    claimed,
    claims,
    end,
    insert,
    path,
    the_job,
    tries,
)
from duly.testing.conformance.samples import START_MS
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")
AT_ONCE = Retention(0, 0, 0, 0)


class LossCases(StoreConformance):
    """Cases for release_expired()."""

    @case
    async def test_first_loss_is_uncharged_and_marked(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job(run_at_ms=START_MS - 5))
        await claim_one(store)
        clock.advance(milliseconds=LEASE_MS)
        assert await store.release_expired() == 1
        job = await the_job(store)
        assert (job.state, job.attempts) == (JobState.QUEUED, 0)
        assert job.start_mode is StartMode.RECORDED
        assert (job.worker, job.lease_until_ms, job.error) == (None, None, None)
        assert job.run_at_ms == START_MS - 5
        now_ms = START_MS + LEASE_MS
        lost = Attempt(A, 1, ADA, START_MS, now_ms, "lost", LEASE_EXPIRED)
        assert await store.job_attempts(A) == [lost]
        event = (await store.job_events(A))[-1]
        assert event == JobEvent(A, 3, now_ms, JobState.QUEUED, 1, None, LEASE_EXPIRED, "lost")

    @case
    async def test_lost_job_asked_to_stop_is_cancelled(
        self, store: Store, clock: ManualClock
    ) -> None:
        await bring_to(store, JobState.PROCESSING)
        await store.cancel_job(A)
        clock.advance(milliseconds=LEASE_MS)
        assert await store.release_expired() == 1
        assert await path(store) == ["queued", "processing", "cancelled"]
        job = await the_job(store)
        assert (job.finished_at_ms, job.attempts) == (START_MS + LEASE_MS, 0)
        assert await tries(store) == [(1, "lost")]

    @case
    async def test_leases_are_kept_to_the_millisecond(
        self, store: Store, clock: ManualClock
    ) -> None:
        await bring_to(store, JobState.PROCESSING)
        clock.advance(milliseconds=LEASE_MS - 1)
        assert await store.release_expired() == 0
        clock.advance(milliseconds=1)
        assert await store.release_expired() == 1
        assert await store.release_expired() == 0

    @case
    async def test_earliest_leases_are_released_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        for name, lease_ms in (("a", 3_000), ("b", 1_000), ("c", 2_000)):
            await insert(store, a_job(name))
            await claim_one(store, lease_ms=lease_ms)
        clock.advance(seconds=3)
        assert await store.release_expired(limit=2) == 2
        states = [(await the_job(store, name)).state.value for name in "abc"]
        assert states == ["processing", "queued", "queued"]

    @case
    async def test_lost_jobs_keep_their_place(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job("a"))
        await claim_one(store)
        clock.advance(milliseconds=LEASE_MS)
        await insert(store, a_job("b"))
        assert await claimed(store) == ["a", "b"]


class LeaseEndCases(StoreConformance):
    """Cases for next_lease_end()."""

    @case
    async def test_no_lease_has_no_end(self, store: Store) -> None:
        for state in (JobState.SCHEDULED, JobState.RETRYING, JobState.SUCCEEDED, JobState.QUEUED):
            await bring_to(store, state, state.value)
        assert await store.next_lease_end() == NextLeaseEnd(None, START_MS)

    @case
    async def test_the_first_lease_end_is_told(self, store: Store, clock: ManualClock) -> None:
        for name, lease_ms in (("a", 3_000), ("b", 1_000), ("c", 2_000)):
            await insert(store, a_job(name, queue=name))
            await claim_one(store, queues=(name,), lease_ms=lease_ms)
        clock.advance(milliseconds=999)
        assert await store.next_lease_end() == NextLeaseEnd(START_MS + 1_000, START_MS + 999)
        clock.advance(seconds=5)
        ended = NextLeaseEnd(START_MS + 1_000, START_MS + 5_999)
        assert await store.next_lease_end() == ended, "it waits to be released"
        assert await store.release_expired() == 3
        assert (await store.next_lease_end()).at_ms is None

    @case
    async def test_ended_jobs_have_no_lease_end(self, store: Store, clock: ManualClock) -> None:
        await insert(store, *[a_job(f"a{number}") for number in range(30)])
        for _ in range(10):
            for job in (await claims(store, lease_ms=LEASE_MS, limit=3)).jobs:
                await end(store, job, Succeeded())
            clock.advance(milliseconds=1)
        await insert(store, a_job("b"))
        await claim_one(store, lease_ms=LEASE_MS)
        assert await store.next_lease_end() == NextLeaseEnd(START_MS + 10 + LEASE_MS, START_MS + 10)

    @case
    async def test_renewed_leases_end_later(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job("a"), a_job("b"))
        held = (await claims(store, lease_ms=LEASE_MS)).jobs
        clock.advance(seconds=10)
        await store.renew(ADA, [(job.id, job.fence) for job in held], LEASE_MS)
        now_ms = START_MS + 10_000
        assert await store.next_lease_end() == NextLeaseEnd(now_ms + LEASE_MS, now_ms)


class PromotionCases(StoreConformance):
    """Cases for promote_due()."""

    @case
    async def test_due_jobs_are_queued(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.RETRYING, "a")
        await insert(store, a_job("b", run_at_ms=START_MS + 1_000))
        await insert(store, a_job("c", run_at_ms=START_MS + 1_001))
        clock.advance(milliseconds=999)
        assert await store.promote_due() == 0
        clock.advance(milliseconds=1)
        assert await store.promote_due() == 2
        assert (await path(store, "a"))[-2:] == ["retrying", "queued"]
        assert await path(store, "b") == ["scheduled", "queued"]
        assert await path(store, "c") == ["scheduled"]
        event = (await store.job_events(JobId("b")))[-1]
        assert event == JobEvent(JobId("b"), 2, START_MS + 1_000, JobState.QUEUED, 0, None, None)
        assert await store.promote_due() == 0

    @case
    async def test_earliest_are_promoted_first(self, store: Store, clock: ManualClock) -> None:
        for name, run_at_ms in (("a", 3), ("c", 1), ("b", 1), ("d", 2)):
            await insert(store, a_job(name, run_at_ms=START_MS + run_at_ms))
        clock.advance(seconds=1)
        for name in "bcda":
            assert await store.promote_due(limit=1) == 1
            assert (await the_job(store, name)).state is JobState.QUEUED

    @case
    async def test_every_queue_is_promoted(self, store: Store, clock: ManualClock) -> None:
        for queue in ("one", "two"):
            await insert(store, a_job(queue, queue=queue, run_at_ms=START_MS + 1))
        clock.advance(seconds=1)
        assert await store.promote_due() == 2


class PruneCases(StoreConformance):
    """Cases for prune()."""

    @case
    async def test_ended_jobs_are_removed_in_their_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        for state in (JobState.SUCCEEDED, JobState.CANCELLED, JobState.DEAD, JobState.DELETED):
            await bring_to(store, state, state.value)
        kept = Retention(2 * DAY_MS, 3 * DAY_MS, 4 * DAY_MS, DAY_MS)
        for name in ("deleted", "succeeded", "cancelled", "dead"):
            clock.advance(days=1, milliseconds=-1)
            assert await store.prune(kept) == 0
            clock.advance(milliseconds=1)
            assert await store.prune(kept) == 1
            assert await store.get_job(JobId(name)) is None
        assert await store.list_jobs(JobFilter()) == []

    @case
    async def test_running_and_waiting_jobs_are_never_removed(
        self, store: Store, clock: ManualClock
    ) -> None:
        for state in (
            JobState.SCHEDULED,
            JobState.RETRYING,
            JobState.PROCESSING,
            JobState.QUEUED,
        ):
            await bring_to(store, state, state.value)
        clock.advance(days=3_650)
        assert await store.prune(AT_ONCE) == 0
        assert len(await store.list_jobs(JobFilter())) == 4

    @case
    async def test_events_and_attempts_go_with_the_job(self, store: Store) -> None:
        await bring_to(store, JobState.SUCCEEDED)
        await bring_to(store, JobState.QUEUED, "b")
        assert await store.prune(AT_ONCE) == 1
        assert await store.get_job(A) is None
        assert await store.job_events(A) == []
        assert await store.job_attempts(A) == []
        assert await path(store, "b") == ["queued"]
        await insert(store, a_job("a"))

    @case
    async def test_a_job_deleted_at_the_instant_of_its_end_goes_too(self, store: Store) -> None:
        await bring_to(store, JobState.SUCCEEDED)
        await store.delete_job(A)
        assert await store.prune(AT_ONCE) == 1
        assert await store.get_job(A) is None

    @case
    async def test_oldest_are_removed_first_and_in_batches(
        self, store: Store, clock: ManualClock
    ) -> None:
        for name in "cadb":
            await bring_to(store, JobState.SUCCEEDED, name)
            clock.advance(seconds=1)
        assert await store.prune(AT_ONCE, limit=3) == 3
        assert [job.id for job in await store.list_jobs(JobFilter())] == ["b"]
        assert await store.prune(AT_ONCE, limit=3) == 1
        assert await store.prune(AT_ONCE, limit=3) == 0

    @case
    async def test_retried_jobs_are_not_removed(self, store: Store) -> None:
        await bring_to(store, JobState.DEAD)
        await store.retry_job(A)
        assert await store.prune(AT_ONCE) == 0

    @case
    async def test_time_kept_counts_from_the_end(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job())
        clock.advance(days=9)
        await end(store, await claim_one(store), Failed("no hope", is_final=True))
        clock.advance(days=29)
        assert await store.prune(Retention()) == 0
        clock.advance(days=1)
        assert await store.prune(Retention()) == 1

    @case
    async def test_sweeps_are_bounded(self, store: Store) -> None:
        for limit in (0, MAX_SWEEP + 1):
            with pytest.raises(InvalidInput):
                await store.release_expired(limit)
            with pytest.raises(InvalidInput):
                await store.promote_due(limit)
            with pytest.raises(InvalidInput):
                await store.prune(AT_ONCE, limit)
