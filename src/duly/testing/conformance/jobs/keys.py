"""Idempotency keys: their scope and lifetime; a refused insert takes none."""

from __future__ import annotations

import asyncio

from duly.model.jobs import JobId, JobState
from duly.model.stored_jobs import DAY_MS, Enqueued, KeyTaken, Retention
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import a_job, bring_to, insert, path
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")
FOUND = [Enqueued(A, created=False)]


class KeyCases(StoreConformance):
    """Cases for insert_jobs() with keys."""

    @case
    async def test_same_key_and_input_is_the_same_job(self, store: Store) -> None:
        await insert(store, a_job("a", key="k", input="1"))
        assert await store.insert_jobs([a_job("b", key="k", input="1")]) == FOUND
        assert await store.get_job(JobId("b")) is None
        assert await path(store) == ["queued"]

    @case
    async def test_same_key_with_another_input_is_taken(self, store: Store) -> None:
        await insert(store, a_job("a", key="k", input="1"))
        assert await store.insert_jobs([a_job("b", key="k", input="2")]) == [KeyTaken(A)]
        assert await store.get_job(JobId("b")) is None
        await insert(store, a_job("b"))

    @case
    async def test_keys_belong_to_workspace_and_action(self, store: Store) -> None:
        await insert(
            store,
            a_job("a", key="k"),
            a_job("b", key="k", workspace="acme"),
            a_job("c", key="k", action="reminders.count"),
            a_job("d", key="K"),
        )

    @case
    async def test_keys_run_out(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job("a", key="k", key_ttl_ms=1_000))
        clock.advance(milliseconds=999)
        assert await store.insert_jobs([a_job("b", key="k", key_ttl_ms=1_000)]) == FOUND
        clock.advance(milliseconds=1)
        await insert(store, a_job("b", key="k", key_ttl_ms=1_000))
        clock.advance(milliseconds=999)
        found = [Enqueued(JobId("b"), created=False)]
        assert await store.insert_jobs([a_job("c", key="k", key_ttl_ms=1_000)]) == found

    @case
    async def test_keys_live_for_a_week_unless_told(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job("a", key="k"))
        clock.advance(days=7, milliseconds=-1)
        assert await store.insert_jobs([a_job("b", key="k")]) == FOUND
        clock.advance(milliseconds=1)
        await insert(store, a_job("b", key="k"))

    @case
    async def test_keys_outlive_their_jobs(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.SUCCEEDED, key="k")
        clock.advance(days=2)
        assert await store.prune(Retention(succeeded_ms=DAY_MS)) == 1
        assert await store.insert_jobs([a_job("b", key="k")]) == FOUND
        clock.advance(days=5)
        assert await store.prune(Retention()) == 0
        await insert(store, a_job("b", key="k"))

    @case
    async def test_keys_outlive_their_jobs_for_the_same_id_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        await bring_to(store, JobState.SUCCEEDED, key="k", input="1")
        clock.advance(days=2)
        assert await store.prune(Retention(succeeded_ms=DAY_MS)) == 1
        assert await store.insert_jobs([a_job("a", key="k", input="1")]) == FOUND
        assert await store.insert_jobs([a_job("a", key="k", input="2")]) == [KeyTaken(A)]
        assert await store.get_job(A) is None

    @case
    async def test_keys_of_deleted_jobs_stand(self, store: Store) -> None:
        await bring_to(store, JobState.DELETED, key="k", input="1")
        assert await store.insert_jobs([a_job("b", key="k", input="1")]) == FOUND
        assert await store.insert_jobs([a_job("b", key="k", input="2")]) == [KeyTaken(A)]

    @case
    async def test_earlier_jobs_count_for_later_ones(self, store: Store) -> None:
        answers = await store.insert_jobs(
            [
                a_job("a", key="k", input="1"),
                a_job("b", key="k", input="1"),
                a_job("c", key="k", input="2"),
                a_job("a", key="k", input="1"),
                a_job("d", key="l", input="2"),
            ]
        )
        assert answers == [
            Enqueued(A, created=True),
            Enqueued(A, created=False),
            KeyTaken(A),
            Enqueued(A, created=False),
            Enqueued(JobId("d"), created=True),
        ]

    @case
    async def test_id_may_repeat_in_a_batch_with_another_key(self, store: Store) -> None:
        """Every job of a batch has its own answer, even if ids repeat."""
        await insert(store, a_job("x", key="k", input="1"))
        answers = await store.insert_jobs(
            [
                a_job("a"),
                a_job("a", key="k", input="2"),
                a_job("b", key="k", input="2"),
                a_job("b", key="l", input="2"),
            ]
        )
        assert answers == [
            Enqueued(A, created=True),
            Enqueued(A, created=False),
            KeyTaken(JobId("x")),
            Enqueued(JobId("b"), created=True),
        ]

    @case
    async def test_repeated_insert_finds_its_own_job(self, store: Store) -> None:
        await insert(store, a_job("a", key="k"))
        assert await store.insert_jobs([a_job("a", key="k")]) == FOUND
        assert await path(store) == ["queued"]

    @case
    async def test_job_that_exists_takes_no_key(self, store: Store) -> None:
        await insert(store, a_job("a"))
        assert await store.insert_jobs([a_job("a", key="k")]) == FOUND
        await insert(store, a_job("b", key="k"))

    @case
    async def test_job_that_exists_is_not_asked_for_its_key(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b", key="k", input="1"))
        assert await store.insert_jobs([a_job("a", key="k", input="2")]) == FOUND

    @case
    async def test_keys_inserted_at_once_are_taken_once(self, store: Store) -> None:
        jobs = [a_job(f"{number:02}", key="k") for number in range(20)]
        answers = await asyncio.gather(*(store.insert_jobs([job]) for job in jobs))
        assert len({each.job_id for (each,) in answers}) == 1
        assert sum(isinstance(each, Enqueued) and each.created for (each,) in answers) == 1
        assert [each.jobs for each in await store.count_jobs()] == [1]
