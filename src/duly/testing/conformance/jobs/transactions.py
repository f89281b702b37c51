"""The conformance suite for jobs inserted in a caller's transaction."""

from __future__ import annotations

from typing import Any

import pytest

from duly.errors import InvalidInput
from duly.model.jobs import JobId, JobState
from duly.model.stored_jobs import MAX_INSERT, Enqueued, JobFilter, KeyTaken
from duly.stores.port import Store
from duly.testing.conformance.jobs.samples import a_job, claimed, insert, path, the_job
from duly.testing.conformance.samples import HOUR_MS, START_MS
from duly.testing.conformance.schedules.transactions import Begin, ChangedMind
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")


class JobTransactionConformance(StoreConformance):
    """The suite for insert_jobs_in()."""

    @pytest.fixture
    def begin(self, store: Store) -> Begin:
        """Return a context manager for a caller's transaction on the test's database; override it.

        The end of the block commits; an exception rolls back.
        """
        if store.capabilities.joins_transaction:
            raise NotImplementedError("the suite's subclass must define a `begin` fixture")
        pytest.skip("capability joins_transaction is missing: there is nothing to join")

    async def roll_back(self, store: Store, begin: Begin, **fields: Any) -> None:
        """Insert a job and roll the transaction back."""

        async def change_mind() -> None:
            with begin() as transaction:
                store.insert_jobs_in(transaction, [a_job(**fields)])
                raise ChangedMind

        with pytest.raises(ChangedMind):
            await change_mind()

    @case
    async def test_jobs_commit_with_the_caller(self, store: Store, begin: Begin) -> None:
        with begin() as transaction:
            answers = store.insert_jobs_in(
                transaction, [a_job("a", input="1"), a_job("b", run_at_ms=START_MS + HOUR_MS)]
            )
        assert answers == [Enqueued(A, created=True), Enqueued(JobId("b"), created=True)]
        assert await path(store, "a") == ["queued"]
        assert await path(store, "b") == ["scheduled"]
        assert (await the_job(store)).created_at_ms == START_MS
        assert await claimed(store) == ["a"]

    @case
    async def test_same_job_either_way(self, store: Store, begin: Begin) -> None:
        fields: dict[str, Any] = {
            "priority": 3,
            "workspace": "acme",
            "metadata": "{}",
            "delivery": "at_most_once",
        }
        with begin() as transaction:
            store.insert_jobs_in(transaction, [a_job("a", **fields)])
        await insert(store, a_job("b", **fields))
        one, other = await the_job(store, "a"), await the_job(store, "b")
        for name in one.__struct_fields__:
            assert name == "id" or getattr(one, name) == getattr(other, name), name

    @case
    async def test_jobs_roll_back_with_the_caller(self, store: Store, begin: Begin) -> None:
        await self.roll_back(store, begin)
        assert await store.list_jobs(JobFilter()) == []
        assert await store.job_events(A) == []

    @case
    async def test_keys_roll_back_with_the_caller(self, store: Store, begin: Begin) -> None:
        await self.roll_back(store, begin, key="k", input="1")
        await insert(store, a_job("b", key="k", input="2"))

    @case
    async def test_taken_keys_abort_nothing(self, store: Store, begin: Begin) -> None:
        await insert(store, a_job("a", key="k", input="1"))
        jobs = [a_job("b", key="k", input="2"), a_job("c", key="k", input="1"), a_job("a")]
        with begin() as transaction:
            assert store.insert_jobs_in(transaction, jobs) == [
                KeyTaken(A),
                Enqueued(A, created=False),
                Enqueued(A, created=False),
            ]
            store.insert_jobs_in(transaction, [a_job("d")])
        assert [job.id for job in await store.list_jobs(JobFilter())] == ["d", "a"]

    @case
    async def test_too_many_jobs_abort_nothing(self, store: Store, begin: Begin) -> None:
        many = [a_job(str(number)) for number in range(MAX_INSERT + 1)]
        with begin() as transaction:
            with pytest.raises(InvalidInput):
                store.insert_jobs_in(transaction, many)
            store.insert_jobs_in(transaction, [a_job("d")])
        assert [job.id for job in await store.list_jobs(JobFilter())] == ["d"]

    @case
    async def test_jobs_are_seen_inside_the_transaction(self, store: Store, begin: Begin) -> None:
        with begin() as transaction:
            store.insert_jobs_in(transaction, [a_job("a", key="k")])
            answers = store.insert_jobs_in(transaction, [a_job("a"), a_job("b", key="k")])
            assert answers == [Enqueued(A, created=False)] * 2
        assert (await the_job(store)).state is JobState.QUEUED
