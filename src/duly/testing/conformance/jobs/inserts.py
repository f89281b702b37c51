"""Inserting jobs: first state and event, repeated ids, and hints to listeners."""

from __future__ import annotations

import asyncio
import threading

import pytest

from duly.errors import InvalidInput
from duly.model.events import JobEvent
from duly.model.jobs import Job, JobId, JobState, NewJob, StartMode
from duly.model.retries import RetryPolicy
from duly.model.stored_jobs import MAX_INSERT, Enqueued, JobFilter
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ACTION,
    PLAIN,
    a_job,
    bring_to,
    claim_one,
    insert,
    path,
    the_job,
)
from duly.testing.conformance.samples import HOUR_MS, MINUTE_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case

WAIT_LIMIT_S = 10.0
"""Seconds within which a backend must deliver a hint."""


class InsertCases(StoreConformance):
    """Cases for insert_jobs() and listen()."""

    @case
    async def test_new_job_is_queued(self, store: Store) -> None:
        assert await store.insert_jobs([a_job()]) == [Enqueued(JobId("a"), created=True)]
        assert await store.get_job(JobId("a")) == Job(
            id=JobId("a"),
            action=ACTION,
            queue="default",
            workspace="system",
            scope="system",
            state=JobState.QUEUED,
            priority=0,
            run_at_ms=START_MS,
            created_at_ms=START_MS,
            finished_at_ms=None,
            attempts=0,
            max_attempts=3,
            start_mode=StartMode.AHEAD,
            fence=0,
            events=1,
            retry=PLAIN,
            timeout_ms=300_000,
            worker=None,
            lease_until_ms=None,
            unstarted=None,
            cancel_asked=False,
            key=None,
            schedule_id=None,
            nominal_ms=None,
            policies=None,
            turn=None,
            in_line=False,
            correlation_id=None,
            metadata=None,
            input="null",
            result=None,
            error=None,
            progress=None,
        )
        event = JobEvent(JobId("a"), 1, START_MS, JobState.QUEUED, 0, None, None)
        assert await store.job_events(JobId("a")) == [event]
        assert await store.job_attempts(JobId("a")) == []

    @case
    async def test_every_field_comes_back(self, store: Store) -> None:
        new = NewJob(
            id=JobId("job_ü"),
            action="mail.send_all",
            input='{"to": ["ada", "bob"], "text": "Grüße \U0001f44b"}',
            queue="mail",
            workspace="acme",
            scope="user:ada",
            priority=-7,
            aging_ms=60_000,
            run_at_ms=START_MS + HOUR_MS,
            retry=RetryPolicy(attempts=9, backoff="none", longest_delay_ms=5_000),
            timeout_ms=1_234,
            key="once only",
            schedule_id="sch_1",
            nominal_ms=START_MS - 1,
            correlation_id="request 7",
            metadata='{"kind": "digest"}',
        )
        await insert(store, new)
        job = await the_job(store, "job_ü")
        for name in new.__struct_fields__:
            if name not in ("aging_ms", "delivery", "key_ttl_ms"):
                assert getattr(job, name) == getattr(new, name), name
        assert (job.max_attempts, job.start_mode) == (9, StartMode.AHEAD)

    @case
    async def test_time_to_come_is_scheduled(self, store: Store) -> None:
        await insert(store, a_job(run_at_ms=START_MS + 1))
        assert (await the_job(store)).run_at_ms == START_MS + 1
        assert await path(store) == ["scheduled"]

    @case
    async def test_time_that_has_come_is_queued(self, store: Store) -> None:
        times = {"now": START_MS, "past": START_MS - HOUR_MS}
        for name, run_at_ms in times.items():
            await insert(store, a_job(name, run_at_ms=run_at_ms))
            assert await path(store, name) == ["queued"]
            assert (await the_job(store, name)).run_at_ms == run_at_ms

    @case
    async def test_at_most_once_is_stored(self, store: Store) -> None:
        await insert(store, a_job(delivery="at_most_once"))
        job = await the_job(store)
        assert (job.delivery, job.start_mode) == ("at_most_once", StartMode.ONCE)
        assert job.max_attempts == 1

    @case
    async def test_id_that_exists_is_left_alone(self, store: Store) -> None:
        job = await bring_to(store, JobState.SUCCEEDED)
        again = a_job(input="1", queue="other", run_at_ms=START_MS + HOUR_MS)
        assert await store.insert_jobs([again]) == [Enqueued(JobId("a"), created=False)]
        assert await the_job(store) == job
        assert await path(store) == ["queued", "processing", "succeeded"]

    @case
    async def test_id_may_repeat_in_a_batch(self, store: Store) -> None:
        answers = await store.insert_jobs([a_job("a", input="1"), a_job("a", input="2")])
        assert answers == [Enqueued(JobId("a"), created=True), Enqueued(JobId("a"), created=False)]
        assert (await the_job(store)).input == "1"
        assert await path(store) == ["queued"]

    @case
    async def test_answers_are_in_order(self, store: Store) -> None:
        await insert(store, a_job("b"))
        answers = await store.insert_jobs([a_job("c"), a_job("b"), a_job("a")])
        assert [(each.job_id, each) for each in answers] == [
            (name, Enqueued(JobId(name), created=name != "b")) for name in ("c", "b", "a")
        ]

    @case
    async def test_id_inserted_at_once_is_made_once(self, store: Store) -> None:
        answers = await asyncio.gather(*(store.insert_jobs([a_job()]) for _ in range(10)))
        made = [each for (each,) in answers if isinstance(each, Enqueued) and each.created]
        assert len(made) == 1
        assert await path(store) == ["queued"]

    @case
    async def test_nothing_is_a_batch(self, store: Store) -> None:
        assert await store.insert_jobs([]) == []

    @case
    async def test_batches_may_be_large(self, store: Store) -> None:
        await insert(store, *(a_job(f"{number:04}") for number in range(1_500)))
        assert [each.jobs for each in await store.count_jobs()] == [1_500]

    @case
    async def test_batches_have_an_end(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.insert_jobs([a_job(str(number)) for number in range(MAX_INSERT + 1)])
        assert await store.list_jobs(JobFilter()) == []

    @case
    async def test_times_are_the_stores(self, store: Store, clock: ManualClock) -> None:
        clock.advance(minutes=1)
        await insert(store, a_job())
        assert (await the_job(store)).created_at_ms == START_MS + MINUTE_MS
        (event,) = await store.job_events(JobId("a"))
        assert event.at_ms == START_MS + MINUTE_MS

    @case
    async def test_listeners_hear_of_new_and_cancelled_jobs(self, store: Store) -> None:
        if not store.capabilities.notifies:
            pytest.skip("capability notifies is missing: there is nothing to hear")
        heard = {"queue:mail": threading.Event(), "cancel:a": threading.Event()}
        heard["queue:*"] = heard["queue:mail"]  # sent while nothing was listening

        def wake(hint: str) -> None:
            if hint in heard:
                heard[hint].set()

        end = store.listen(wake)
        await insert(store, a_job(queue="mail"))
        assert await asyncio.to_thread(heard["queue:mail"].wait, WAIT_LIMIT_S)
        await claim_one(store, queues=("mail",))
        await store.cancel_job(JobId("a"))
        assert await asyncio.to_thread(heard["cancel:a"].wait, WAIT_LIMIT_S)
        end()

    @case
    async def test_listening_ends(self, store: Store) -> None:
        heard: list[str] = []
        end = store.listen(heard.append)
        end()
        end()
        before = list(heard)  # a listener may already have been notified that it is listening
        await insert(store, a_job())
        assert heard == before
