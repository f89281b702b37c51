"""Leases of running jobs: only the holder renews them and reports progress."""

from __future__ import annotations

from duly.model.claims import ProgressNote, Renewed
from duly.model.jobs import JobId, JobState
from duly.rules.outcomes import Succeeded, decide
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ADA,
    BOB,
    LEASE_MS,
    a_job,
    bring_to,
    claim_one,
    claims,
    end,
    insert,
    path,
    the_job,
)
from duly.testing.conformance.samples import START_MS
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")
FINE = Renewed([], [])


class LeaseCases(StoreConformance):
    """Cases for renew() and note_progress()."""

    @case
    async def test_renewal_extends_the_lease(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.PROCESSING)
        for number in range(1, 4):
            clock.advance(seconds=20)
            assert await store.renew(ADA, [(A, 1)], LEASE_MS) == FINE
            assert await store.release_expired() == 0
            lease_until_ms = START_MS + number * 20_000 + LEASE_MS
            assert (await the_job(store)).lease_until_ms == lease_until_ms
        assert await path(store) == ["queued", "processing"]

    @case
    async def test_renewal_of_nothing(self, store: Store) -> None:
        assert await store.renew(ADA, [], LEASE_MS) == FINE

    @case
    async def test_void_leases_are_lost(self, store: Store) -> None:
        for name in "abcd":
            await insert(store, a_job(name))
        jobs = (await claims(store)).jobs
        await end(store, jobs[2], Succeeded())
        leases = [(A, 2), (JobId("b"), 1), (JobId("c"), 1), (JobId("nobody"), 1)]
        assert await store.renew(ADA, leases, 60_000) == Renewed(
            [A, JobId("c"), JobId("nobody")], []
        )
        ends = [(await the_job(store, name)).lease_until_ms for name in "abcd"]
        assert ends == [START_MS + LEASE_MS, START_MS + 60_000, None, START_MS + LEASE_MS]

    @case
    async def test_only_the_holder_renews(self, store: Store) -> None:
        await bring_to(store, JobState.PROCESSING)
        assert await store.renew(BOB, [(A, 1)], 60_000) == Renewed([A], [])
        assert (await the_job(store)).lease_until_ms == START_MS + LEASE_MS

    @case
    async def test_lease_that_ended_unnoticed_is_renewed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await bring_to(store, JobState.PROCESSING)
        clock.advance(milliseconds=LEASE_MS + 1)
        assert await store.renew(ADA, [(A, 1)], LEASE_MS) == FINE
        assert await store.release_expired() == 0

    @case
    async def test_lease_that_was_taken_is_lost(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.PROCESSING)
        clock.advance(milliseconds=LEASE_MS)
        assert (await claim_one(store, ADA)).fence == 2
        assert await store.renew(ADA, [(A, 1)], LEASE_MS) == Renewed([A], [])
        assert await store.renew(ADA, [(A, 2)], LEASE_MS) == FINE

    @case
    async def test_renewal_tells_what_to_cancel(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b"))
        await claims(store)
        await store.cancel_job(JobId("b"))
        leases = [(A, 1), (JobId("b"), 1)]
        assert await store.renew(ADA, leases, 60_000) == Renewed([], [JobId("b")])
        assert (await the_job(store, "b")).lease_until_ms == START_MS + 60_000

    @case
    async def test_progress_is_kept(self, store: Store) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        for percent in (40, 80):
            progress = f'{{"percent": {percent}}}'
            assert await store.note_progress([ProgressNote(A, 1, progress)]) == []
            assert (await the_job(store)).progress == progress
        await end(store, job, Succeeded())
        assert (await the_job(store)).progress == '{"percent": 80}'
        assert await path(store) == ["queued", "processing", "succeeded"]

    @case
    async def test_progress_of_void_fences_is_refused(
        self, store: Store, clock: ManualClock
    ) -> None:
        await bring_to(store, JobState.PROCESSING)
        clock.advance(milliseconds=LEASE_MS)
        job = await claim_one(store, BOB)
        nobody = JobId("nobody")
        void = [ProgressNote(A, 1, "1"), ProgressNote(nobody, 1, "1")]
        assert await store.note_progress(void) == [A, nobody]
        await end(store, job, Succeeded())
        assert await store.note_progress([ProgressNote(A, 2, "1")]) == [A]
        assert (await the_job(store)).progress is None

    @case
    async def test_progress_of_many_is_noted_at_once(self, store: Store) -> None:
        await insert(store, *(a_job(name) for name in "abc"))
        assert len((await claims(store)).jobs) == 3
        notes = [ProgressNote(JobId(name), 1, f'"{name}"') for name in "cab"]
        void = ProgressNote(JobId("b"), 9, "9")
        assert await store.note_progress([*notes[:2], void]) == [JobId("b")]
        assert [(await the_job(store, name)).progress for name in "abc"] == ['"a"', None, '"c"']
        assert await store.note_progress([]) == []

    @case
    async def test_completions_bring_their_last_progress(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b"))
        first, second = (await claims(store)).jobs
        await store.note_progress([ProgressNote(second.id, 1, "2")])
        ends = [decide(first, Succeeded())._replace(progress="1"), decide(second, Succeeded())]
        assert await store.finish(ends) == []
        assert [(await the_job(store, name)).progress for name in "ab"] == ["1", "2"]
