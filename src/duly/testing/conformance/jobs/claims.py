"""Claims of jobs: the jobs taken, their order, and the stored changes."""

from __future__ import annotations

import asyncio

import pytest

from duly.errors import InvalidInput
from duly.model.claims import MAX_JOB_CLAIM, Claims
from duly.model.events import Attempt, JobEvent
from duly.model.jobs import ALL_QUEUES, JobId, JobState, LeasedJob, StartMode, WorkerId, retry_text
from duly.model.queues import QueueSettings
from duly.rules.outcomes import LEASE_EXPIRED, Failed, Released
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ACTION,
    ADA,
    BOB,
    LEASE_MS,
    PLAIN,
    RESTING,
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
from duly.testing.conformance.samples import HOUR_MS, MINUTE_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")


class JobClaimCases(StoreConformance):
    """Cases for claim_jobs() without fairness."""

    @case
    async def test_claimed_jobs_are_leased(self, store: Store) -> None:
        await insert(store, a_job(timeout_ms=7, schedule_id="sch_1", correlation_id="request 7"))
        leased = LeasedJob(
            id=A,
            action=ACTION,
            input="null",
            queue="default",
            workspace="system",
            scope="system",
            attempts=0,
            max_attempts=3,
            careful=0,
            fence=1,
            retry=retry_text(PLAIN),
            timeout_ms=7,
            schedule_id="sch_1",
            nominal_ms=None,
            correlation_id="request 7",
            place=START_MS,
        )
        answer = await claims(store, lease_ms=LEASE_MS)
        assert answer == Claims([leased], {}, None, START_MS)
        job = await the_job(store)
        assert (job.state, job.worker, job.fence) == (JobState.PROCESSING, ADA, 1)
        assert job.lease_until_ms == START_MS + LEASE_MS

    @case
    async def test_who_comes_due_before_the_line_is_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job("waits"))
        await insert(store, a_job("comes", priority=9, run_at_ms=START_MS + MINUTE_MS))
        clock.advance(minutes=1)
        assert await claimed(store, limit=1) == ["comes"]
        assert await claimed(store, limit=1) == ["waits"]

    @case
    async def test_claims_write_attempts_and_events(self, store: Store) -> None:
        names = [f"{number}" for number in range(5)]
        await insert(store, *(a_job(name) for name in names))
        assert await claimed(store) == names
        for name in map(JobId, names):
            attempt = Attempt(name, 1, ADA, START_MS, None, None, None)
            assert await store.job_attempts(name) == [attempt]
            event = JobEvent(name, 2, START_MS, JobState.PROCESSING, 1, ADA, None)
            assert (await store.job_events(name))[1:] == [event]

    @case
    async def test_order_is_priority_then_time_then_id(self, store: Store) -> None:
        await insert(
            store,
            a_job("e"),
            a_job("d", run_at_ms=START_MS - 1),
            a_job("c", priority=1),
            a_job("b", priority=-1, run_at_ms=START_MS - HOUR_MS),
            a_job("a"),
        )
        assert await claimed(store) == ["c", "d", "a", "e", "b"]

    @case
    async def test_priority_outweighs_every_waiting_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job("old"))
        clock.advance(days=3_650)
        await insert(store, a_job("new", priority=1))
        assert await claimed(store) == ["new", "old"]

    @case
    async def test_waiting_outweighs_priority_with_aging(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job("old", aging_ms=MINUTE_MS))
        clock.advance(minutes=2)
        await insert(store, a_job("mid", aging_ms=MINUTE_MS, priority=1))
        await insert(store, a_job("new", aging_ms=MINUTE_MS, priority=3))
        assert await claimed(store) == ["new", "old", "mid"]

    @case
    async def test_queues_are_served_in_the_order_asked(self, store: Store) -> None:
        await insert(store, a_job("a", queue="one", priority=9), a_job("b", queue="two"))
        await insert(store, a_job("c", queue="three"))
        assert await claimed(store, queues=("two", "one", "two")) == ["b", "a"]
        assert (await the_job(store, "c")).state is JobState.QUEUED

    @case
    async def test_limit_counts_over_all_queues(self, store: Store) -> None:
        for queue in ("one", "two"):
            await insert(store, *(a_job(f"{queue}{number}", queue=queue) for number in range(3)))
        assert await claimed(store, queues=("two", "one"), limit=4) == [
            "two0",
            "two1",
            "two2",
            "one0",
        ]

    @case
    async def test_at_most_once_jobs_keep_their_place(self, store: Store) -> None:
        for name in "acegi":
            await insert(store, a_job(name))
        for name in "bdfh":
            await insert(store, a_job(name, delivery="at_most_once"))
        await insert(store, a_job("z", delivery="at_most_once", priority=1))
        assert await claimed(store, limit=5) == ["z", "a", "b", "c", "d"]
        assert await claimed(store, limit=9) == ["e", "f", "g", "h", "i"]

    @case
    async def test_no_room_takes_nothing(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b", delivery="at_most_once"))
        assert await claimed(store, limit=0) == []
        assert await path(store) == ["queued"]

    @case
    async def test_claims_are_not_charged(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b", delivery="at_most_once"))
        plain, once = (await claims(store)).jobs
        assert (plain.attempts, plain.careful, plain.attempt) == (0, StartMode.AHEAD, 1)
        assert (once.attempts, once.careful, once.attempt) == (0, StartMode.ONCE, 1)
        assert [(await the_job(store, name)).attempts for name in "ab"] == [0, 0]
        assert [(await the_job(store, name)).unstarted for name in "ab"] == [None, 1]

    @case
    async def test_only_named_actions_are_taken(self, store: Store) -> None:
        await insert(store, a_job("a", action="x.a", priority=1), a_job("b", action="x.b"))
        await insert(store, a_job("c", action="x.c"))
        assert await claimed(store, actions=("x.b", "x.c"), limit=1) == ["b"]
        assert await claimed(store, actions=("x.b", "x.c")) == ["c"]
        assert await claimed(store, actions=()) == []
        assert await claimed(store, actions=None) == ["a"]

    @case
    async def test_paused_queues_are_not_served(self, store: Store) -> None:
        await insert(store, a_job("a", queue="one"), a_job("b", queue="two"))
        await store.set_queue(QueueSettings("one", is_paused=True, note="repairs"))
        assert await claimed(store, queues=("one", "two")) == ["b"]
        await store.set_queue(QueueSettings("one"))
        assert await claimed(store, queues=("one", "two")) == ["a"]

    @case
    async def test_a_pause_of_all_queues_holds_for_every_queue(self, store: Store) -> None:
        """A pause of all queues includes queues first used later, and keeps single pauses."""
        await insert(store, a_job("a", queue="one"), a_job("b", queue="two"))
        await store.set_queue(QueueSettings("two", is_paused=True, job_limit=5))
        await store.set_queue(QueueSettings(ALL_QUEUES, is_paused=True, note="repairs"))
        await insert(store, a_job("c", queue="new"))
        every = ("one", "two", "new")
        assert await claimed(store, queues=every) == []
        assert (await claims(store, queues=every)).wake_at_ms is None
        assert await claimed(store, queues=every, fair=True) == []
        await store.set_queue(QueueSettings("two", job_limit=5))
        assert await claimed(store, queues=every) == []
        await store.set_queue(QueueSettings("two", is_paused=True, job_limit=5))
        await store.set_queue(QueueSettings(ALL_QUEUES))
        assert sorted(await claimed(store, queues=every)) == ["a", "c"]
        await store.set_queue(QueueSettings("two", job_limit=5))
        assert await claimed(store, queues=every) == ["b"]

    @case
    async def test_jobs_wait_for_their_time(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job(run_at_ms=START_MS + 1_000))
        clock.advance(milliseconds=999)
        assert await claimed(store) == []
        clock.advance(milliseconds=1)
        assert await claimed(store) == ["a"]
        assert await path(store) == ["scheduled", "queued", "processing"]

    @case
    async def test_retries_wait_for_their_time(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.RETRYING)
        clock.advance(milliseconds=999)
        assert await claimed(store) == []
        clock.advance(milliseconds=1)
        job = await claim_one(store)
        assert (job.attempts, job.fence, job.attempt) == (1, 2, 2)

    @case
    async def test_lost_jobs_are_rescued_and_claimed_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        await bring_to(store, JobState.PROCESSING)
        clock.advance(milliseconds=LEASE_MS - 1)
        assert await claimed(store, BOB) == []
        clock.advance(milliseconds=1)
        job = await claim_one(store, BOB)
        assert (job.fence, job.careful, job.attempts) == (2, StartMode.RECORDED, 0)
        # It may have begun before: the attempt number shows it, though the loss is not charged.
        assert (job.attempt, job.tries) == (2, 1)
        assert await path(store) == ["queued", "processing", "queued", "processing"]
        assert await tries(store) == [(1, "lost"), (2, None)]
        events = await store.job_events(A)
        assert [each.reason for each in events] == [None, None, LEASE_EXPIRED, None]
        assert [each.attempt for each in events] == [0, 1, 1, 2]

    @case
    async def test_second_claim_is_empty_for_jobs(self, store: Store) -> None:
        await insert(store, a_job())
        assert await claimed(store) == ["a"]
        assert await claimed(store) == []
        assert await claimed(store, BOB) == []

    @pytest.mark.parametrize("state", [each for each in RESTING if each is not JobState.QUEUED])
    @case
    async def test_only_queued_jobs_are_claimed(self, store: Store, state: JobState) -> None:
        job = await bring_to(store, state)
        assert await claimed(store, BOB) == []
        assert await the_job(store) == job

    @case
    async def test_claims_at_once_are_disjoint(self, store: Store) -> None:
        names = [f"{number:03}" for number in range(100)]
        await insert(store, *(a_job(name) for name in names))
        shares = await asyncio.gather(
            *(claimed(store, WorkerId(f"w{n}"), limit=20) for n in range(8))
        )
        taken = [name for share in shares for name in share]
        taken += await claimed(store)
        assert sorted(taken) == names

    @case
    async def test_released_jobs_keep_their_place(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b"))
        job = await claim_one(store, limit=1)
        await end(store, job, Released())
        assert await claimed(store) == ["a", "b"]

    @case
    async def test_retried_jobs_move_back_by_their_delay(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job("a", priority=1))
        await end(store, await claim_one(store), Failed("no luck"))
        clock.advance(milliseconds=500)
        await insert(store, a_job("b"), a_job("c", priority=1))
        clock.advance(milliseconds=500)
        await insert(store, a_job("d", priority=1))
        assert await claimed(store) == ["c", "a", "d", "b"]

    @case
    async def test_empty_claims_say_when_to_wake(self, store: Store) -> None:
        assert await claims(store) == Claims([], {}, None, START_MS)
        await insert(store, a_job("a", run_at_ms=START_MS + HOUR_MS))
        assert (await claims(store)).wake_at_ms == START_MS + HOUR_MS
        await insert(store, a_job("b"))
        answer = await claims(store, lease_ms=5_000)
        assert (len(answer.jobs), answer.wake_at_ms) == (1, None)
        assert (await claims(store)).wake_at_ms == START_MS + 5_000
        await end(store, answer.jobs[0], Failed("no luck"))
        assert (await claims(store)).wake_at_ms == START_MS + 1_000

    @case
    async def test_other_queues_wake_nobody(self, store: Store) -> None:
        for queue in ("other", "paused"):
            await insert(store, a_job(queue, queue=queue, run_at_ms=START_MS + 1))
        await store.set_queue(QueueSettings("paused", is_paused=True))
        assert (await claims(store, queues=("default", "paused"))).wake_at_ms is None

    @case
    async def test_bad_limits_of_job_claims_are_refused(self, store: Store) -> None:
        await insert(store, a_job())
        for limit in (-1, MAX_JOB_CLAIM + 1):
            with pytest.raises(InvalidInput):
                await claims(store, limit=limit)
        with pytest.raises(InvalidInput):
            await claims(store, queues=())
        assert await claimed(store, limit=MAX_JOB_CLAIM) == ["a"]
