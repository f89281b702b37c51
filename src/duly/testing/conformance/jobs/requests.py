"""Requests about jobs: cancel, retry, delete; in every state, by the transition table."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal

import pytest

from duly.model.claims import ProgressNote
from duly.model.jobs import Job, JobId, JobState, StartMode
from duly.model.stored_jobs import JobRefused
from duly.rules.outcomes import Failed
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    LEASE_MS,
    RESTING,
    a_job,
    bring_to,
    claim_one,
    claimed,
    end,
    insert,
    path,
    the_job,
)
from duly.testing.conformance.samples import MINUTE_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")
Verb = Literal["cancel", "retry", "delete"]

LEADS_TO: dict[Verb, JobState] = {
    "cancel": JobState.CANCELLED,
    "retry": JobState.QUEUED,
    "delete": JobState.DELETED,
}
MAY: dict[Verb, set[str]] = {
    "cancel": {"scheduled", "queued", "retrying"},
    "retry": {"scheduled", "retrying", "dead"},
    "delete": {"queued", "succeeded", "cancelled", "dead"},
}
MATRIX = [(verb, state) for verb in LEADS_TO for state in RESTING]


def request_of(
    store: Store, verb: Verb, name: str = "a", **arguments: Any
) -> Coroutine[Any, Any, Job | JobRefused]:
    """Return the call of the verb for a request."""
    verbs = {"cancel": store.cancel_job, "retry": store.retry_job, "delete": store.delete_job}
    return verbs[verb](JobId(name), **arguments)


class WishCases(StoreConformance):
    """Cases for cancel_job(), retry_job() and delete_job()."""

    @pytest.mark.parametrize(("verb", "state"), MATRIX)
    @case
    async def test_wishes_keep_to_the_table(
        self, store: Store, verb: Verb, state: JobState
    ) -> None:
        before = await bring_to(store, state)
        events = await path(store)
        answer = await request_of(store, verb, by="ada", reason="because")
        after = await the_job(store)
        if state.value in MAY[verb]:
            assert answer == after
            assert await path(store) == [*events, LEADS_TO[verb].value]
            event = (await store.job_events(A))[-1]
            assert (event.actor, event.reason, event.at_ms) == ("ada", "because", START_MS)
            assert event.attempt == before.fence
        elif state is LEADS_TO[verb]:
            assert answer == after == before
            assert await path(store) == events
        elif (verb, state) == ("cancel", JobState.PROCESSING):
            assert isinstance(answer, Job)
            assert answer.cancel_asked
            assert await path(store) == events
        else:
            assert answer == JobRefused(A, state)
            assert after == before
            assert await path(store) == events

    async def repeat(self, store: Store, verb: Verb, state: JobState) -> None:
        """Check that a repeated request changes nothing and has the same answer."""
        await bring_to(store, state)
        first = await request_of(store, verb)
        events = await path(store)
        assert await request_of(store, verb) == first
        assert await path(store) == events

    @case
    async def test_cancel_repeated_adds_nothing(self, store: Store) -> None:
        await self.repeat(store, "cancel", JobState.RETRYING)

    @case
    async def test_retry_repeated_adds_nothing(self, store: Store) -> None:
        await self.repeat(store, "retry", JobState.DEAD)

    @case
    async def test_delete_repeated_adds_nothing(self, store: Store) -> None:
        await self.repeat(store, "delete", JobState.SUCCEEDED)

    @pytest.mark.parametrize("verb", LEADS_TO)
    @case
    async def test_wishes_about_nobody_are_refused(self, store: Store, verb: Verb) -> None:
        assert await request_of(store, verb, "nobody") == JobRefused(JobId("nobody"), None)

    @case
    async def test_cancelled_jobs_are_ended(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job())
        clock.advance(minutes=1)
        job = await store.cancel_job(A)
        assert isinstance(job, Job)
        assert (job.state, job.finished_at_ms) == (JobState.CANCELLED, START_MS + MINUTE_MS)
        assert (await store.job_events(A))[-1].reason is None
        assert await claimed(store) == []

    @case
    async def test_running_jobs_are_asked_to_stop(self, store: Store) -> None:
        before = await bring_to(store, JobState.PROCESSING)
        for _ in range(2):
            job = await store.cancel_job(A)
            assert isinstance(job, Job)
            assert (job.state, job.cancel_asked) == (JobState.PROCESSING, True)
            assert (job.worker, job.lease_until_ms) == (before.worker, before.lease_until_ms)
        assert await path(store) == ["queued", "processing"]

    @case
    async def test_retry_begins_anew(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.DEAD)
        clock.advance(minutes=1)
        job = await store.retry_job(A, by="ada")
        assert isinstance(job, Job)
        assert (job.state, job.attempts, job.max_attempts) == (JobState.QUEUED, 0, 3)
        assert (job.run_at_ms, job.finished_at_ms) == (START_MS + MINUTE_MS, None)
        assert job.error == "no hope"
        event = (await store.job_events(A))[-1]
        assert (event.actor, event.reason) == ("ada", "retry, attempts reset")
        for number in (1, 2, 3):
            leased = await claim_one(store)
            assert (leased.tries, leased.attempt) == (number, number + 1)
            await end(store, leased, Failed("no luck"))
            clock.advance(seconds=1)
        assert (await the_job(store)).state is JobState.DEAD

    @case
    async def test_retry_may_be_for_one_more_try(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job())
        for _ in range(3):
            await end(store, await claim_one(store), Failed("no luck"))
            clock.advance(seconds=1)
        job = await store.retry_job(A, reset_attempts=False)
        assert isinstance(job, Job)
        assert (job.attempts, job.max_attempts) == (3, 4)
        assert (await store.job_events(A))[-1].reason == "retry"
        await end(store, await claim_one(store), Failed("no luck"))
        assert (await the_job(store)).state is JobState.DEAD

    @case
    async def test_retry_with_tries_left_adds_none(self, store: Store) -> None:
        await bring_to(store, JobState.RETRYING)
        job = await store.retry_job(A, reset_attempts=False)
        assert isinstance(job, Job)
        assert (job.attempts, job.max_attempts) == (1, 3)

    @case
    async def test_retry_is_due_now_and_goes_to_its_place(
        self, store: Store, clock: ManualClock
    ) -> None:
        await bring_to(store, JobState.SCHEDULED, priority=1)
        clock.advance(minutes=1)
        await insert(store, a_job("b", priority=1))
        clock.advance(minutes=1)
        await store.retry_job(A)
        clock.advance(minutes=1)
        await insert(store, a_job("c", priority=1), a_job("d"))
        assert (await the_job(store)).run_at_ms == START_MS + 2 * MINUTE_MS
        assert await claimed(store) == ["b", "a", "c", "d"]

    @case
    async def test_retry_keeps_the_mark_of_a_loss(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.PROCESSING)
        clock.advance(milliseconds=LEASE_MS)
        lost = await claim_one(store)
        await end(store, lost, Failed("no hope", is_final=True))
        assert (await the_job(store)).start_mode is StartMode.RECORDED
        await store.retry_job(A, reset_attempts=False)
        assert (await the_job(store)).start_mode is StartMode.RECORDED
        await end(store, await claim_one(store), Failed("no hope", is_final=True))
        await store.retry_job(A)
        assert (await the_job(store)).start_mode is StartMode.RECORDED

    @case
    async def test_retry_leaves_at_most_once(self, store: Store) -> None:
        await bring_to(store, JobState.DEAD, delivery="at_most_once")
        await store.retry_job(A)
        job = await the_job(store)
        assert (job.delivery, job.attempts, job.max_attempts) == ("at_most_once", 0, 1)

    @case
    async def test_retry_forgets_the_wish_to_cancel(self, store: Store) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        await store.cancel_job(A)
        await end(store, job, Failed("no hope", is_final=True))
        await store.retry_job(A)
        again = await claim_one(store)
        assert not (await the_job(store)).cancel_asked
        await end(store, again, Failed("no luck"))
        assert (await the_job(store)).state is JobState.RETRYING

    @case
    async def test_deleted_jobs_are_emptied(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job(input='"secret"', metadata='{"kind": 1}', correlation_id="r"))
        leased = await claim_one(store)
        await store.note_progress([ProgressNote(A, 1, "1")])
        await end(store, leased, Failed("secret", is_final=True))
        clock.advance(minutes=1)
        job = await store.delete_job(A, reason="asked to")
        assert isinstance(job, Job)
        assert job.input == "null"
        assert (job.result, job.error, job.progress, job.metadata) == (None, None, None, None)
        assert (job.finished_at_ms, job.correlation_id) == (START_MS + MINUTE_MS, "r")
        assert await claimed(store) == []
