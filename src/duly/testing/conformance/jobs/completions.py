"""Completions: every outcome, stale fences, and requests to cancel a running job."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.events import Attempt
from duly.model.jobs import Job, JobId, JobState
from duly.model.retries import RetryPolicy
from duly.rules.outcomes import Cancelled, Failed, Finish, Outcome, Released, Succeeded, decide
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ADA,
    BOB,
    LEASE_MS,
    RESTING,
    a_job,
    bring_to,
    claim_one,
    claims,
    end,
    insert,
    path,
    reasons,
    the_job,
    tries,
)
from duly.testing.conformance.samples import START_MS
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")
FROM_PROCESSING = {JobState.SUCCEEDED, JobState.CANCELLED, JobState.QUEUED}
FROM_FAILED = {JobState.RETRYING, JobState.DEAD, JobState.QUEUED}


class EndCases(StoreConformance):
    """Cases for finish()."""

    @case
    async def test_success_ends_a_job(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        clock.advance(seconds=5)
        await end(store, job, Succeeded('{"sent": 3}'))
        ended = await the_job(store)
        assert (ended.state, ended.result, ended.error) == (
            JobState.SUCCEEDED,
            '{"sent": 3}',
            None,
        )
        assert (ended.attempts, ended.fence, ended.finished_at_ms) == (1, 1, START_MS + 5_000)
        assert (ended.worker, ended.lease_until_ms, ended.run_at_ms) == (None, None, START_MS)
        attempt = Attempt(A, 1, ADA, START_MS, START_MS + 5_000, "succeeded", None)
        assert await store.job_attempts(A) == [attempt]
        assert await path(store) == ["queued", "processing", "succeeded"]

    @case
    async def test_an_attempt_keeps_how_long_its_handler_ran(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job())
        outcomes: tuple[Outcome, ...] = (Failed("no"), Released(), Succeeded())
        for number, outcome in enumerate(outcomes, 1):
            job = await claim_one(store)
            clock.advance(seconds=35)  # time to be started and to be stored
            assert await store.finish([decide(job, outcome, took_ms=number * 7)]) == []
            clock.advance(hours=1)
            await store.promote_due()
        took = [each.took_ms for each in await store.job_attempts(A)]
        assert took == [7, 14, 21]
        ended = [each.took_ms for each in await store.job_events(A) if each.took_ms is not None]
        assert ended == [7, 7, 14, 21]

    @case
    async def test_an_attempt_that_was_not_measured_has_no_length(self, store: Store) -> None:
        await insert(store, a_job())
        await end(store, await claim_one(store), Succeeded())
        (attempt,) = await store.job_attempts(A)
        assert attempt.took_ms is None

    @case
    async def test_failure_passes_through_failed(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        clock.advance(seconds=5)
        await end(store, job, Failed("no luck"))
        waiting = await the_job(store)
        assert waiting.state is JobState.RETRYING
        assert (waiting.run_at_ms, waiting.attempts) == (START_MS + 6_000, 1)
        assert (waiting.error, waiting.finished_at_ms) == ("no luck", None)
        assert (waiting.worker, waiting.lease_until_ms) == (None, None)
        assert await path(store) == ["queued", "processing", "failed", "retrying"]
        assert await reasons(store) == [None, None, "no luck", "no luck"]
        attempt = Attempt(A, 1, ADA, START_MS, START_MS + 5_000, "failed", "no luck")
        assert await store.job_attempts(A) == [attempt]

    @case
    async def test_attempts_are_numbered_and_closed_until_dead(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job())
        for number in (1, 2, 3):
            job = await claim_one(store)
            assert (job.fence, job.attempt) == (number, number)
            await end(store, job, Failed(f"no luck {number}", timed_out=number == 2))
            clock.advance(seconds=1)
        assert await claims(store) == ([], {}, None, START_MS + 3_000)
        dead = await the_job(store)
        assert (dead.state, dead.error, dead.attempts) == (JobState.DEAD, "no luck 3", 3)
        assert dead.finished_at_ms == START_MS + 2_000
        assert await tries(store) == [(1, "failed"), (2, "timed_out"), (3, "failed")]
        assert (await path(store))[-3:] == ["processing", "failed", "dead"]

    @case
    async def test_final_failure_is_dead_at_once(self, store: Store) -> None:
        await insert(store, a_job())
        await end(store, await claim_one(store), Failed("no hope", is_final=True))
        assert await path(store) == ["queued", "processing", "failed", "dead"]
        assert await reasons(store) == [None, None, "no hope", "no hope"]

    @case
    async def test_success_clears_the_error(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.RETRYING)
        assert (await the_job(store)).error == "no luck"
        clock.advance(seconds=1)
        await end(store, await claim_one(store), Succeeded())
        assert (await the_job(store)).error is None

    @case
    async def test_at_most_once_is_tried_once(self, store: Store) -> None:
        await insert(store, a_job(delivery="at_most_once"))
        await end(store, await claim_one(store), Failed("no luck"))
        job = await the_job(store)
        assert (job.state, job.attempts) == (JobState.DEAD, 1)

    @case
    async def test_release_is_never_charged(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b", delivery="at_most_once"))
        for fence in (1, 2):
            for job in (await claims(store)).jobs:
                assert (job.attempt, job.tries) == (fence, 1)
                await end(store, job, Released("stopping"))
        for name in "ab":
            given_back = await the_job(store, name)
            assert (given_back.attempts, given_back.error) == (0, None)
            assert (await path(store, name))[-2:] == ["processing", "queued"]
            assert (await reasons(store, name))[-1] == "stopping"
            assert await tries(store, name) == [(1, "released"), (2, "released")]

    @case
    async def test_release_keeps_the_last_error(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.RETRYING)
        clock.advance(seconds=1)
        await end(store, await claim_one(store), Released())
        job = await the_job(store)
        assert (job.error, job.attempts, job.state) == ("no luck", 1, JobState.QUEUED)
        assert job.run_at_ms == START_MS + 1_000

    @case
    async def test_handlers_may_say_they_stopped(self, store: Store) -> None:
        await insert(store, a_job())
        await end(store, await claim_one(store), Cancelled("asked to"))
        job = await the_job(store)
        assert (job.state, job.finished_at_ms, job.attempts) == (JobState.CANCELLED, START_MS, 1)
        assert (await reasons(store))[-1] == "asked to"
        assert await tries(store) == [(1, "cancelled")]

    @case
    async def test_attempts_say_how_they_ended(self, store: Store) -> None:
        outcomes: dict[str, Outcome] = {
            "succeeded": Succeeded(),
            "failed": Failed("no luck"),
            "timed_out": Failed("too slow", timed_out=True),
            "cancelled": Cancelled(),
            "released": Released(),
        }
        await insert(store, *(a_job(name) for name in outcomes))
        for job in (await claims(store)).jobs:
            await end(store, job, outcomes[job.id])
        for name in map(JobId, outcomes):
            started, ended = (await store.job_events(name))[1:3]
            (attempt,) = await store.job_attempts(name)
            assert (started.state, started.actor) == (JobState.PROCESSING, ADA)
            assert (attempt.status, attempt.error) == (name, ended.reason)
            assert (ended.ended_as or ended.state.value) == name

    @case
    async def test_success_wins_over_a_wish_to_cancel(self, store: Store) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        await store.cancel_job(A)
        await end(store, job, Succeeded())
        assert (await path(store))[-1] == "succeeded"

    async def end_after_a_wish_to_cancel(self, store: Store, outcome: Outcome) -> Job:
        """Request the cancellation of a running job, then end its attempt; return the job."""
        await insert(store, a_job())
        job = await claim_one(store)
        await store.cancel_job(A)
        await end(store, job, outcome)
        assert await path(store) == ["queued", "processing", "cancelled"]
        assert (await reasons(store))[-1] == "cancelled"
        ended = await the_job(store)
        assert (ended.run_at_ms, ended.finished_at_ms) == (START_MS, START_MS)
        assert ended.error == "cancelled"
        attempt = Attempt(A, 1, ADA, START_MS, START_MS, "cancelled", "cancelled")
        assert await store.job_attempts(A) == [attempt]
        return ended

    @case
    async def test_failure_after_a_wish_to_cancel_ends_it(self, store: Store) -> None:
        ended = await self.end_after_a_wish_to_cancel(store, Failed("no luck"))
        assert ended.attempts == 1

    @case
    async def test_release_after_a_wish_to_cancel_ends_it(self, store: Store) -> None:
        ended = await self.end_after_a_wish_to_cancel(store, Released())
        assert ended.attempts == 0

    @case
    async def test_job_asked_to_stop_may_still_die(self, store: Store) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        await store.cancel_job(A)
        await end(store, job, Failed("no hope", is_final=True))
        assert (await path(store))[-2:] == ["failed", "dead"]

    @case
    async def test_late_holder_is_refused(self, store: Store, clock: ManualClock) -> None:
        """A late completion from an expired claim changes nothing."""
        await insert(store, a_job())
        late = await claim_one(store, ADA)
        clock.advance(milliseconds=LEASE_MS)
        current = await claim_one(store, ADA)
        before = await the_job(store)
        for outcome in (Succeeded("1"), Failed("late"), Cancelled(), Released()):
            assert await store.finish([decide(late, outcome)]) == [A]
        assert await the_job(store) == before
        assert await tries(store) == [(1, "lost"), (2, None)]
        await end(store, current, Succeeded("2"))
        assert (await the_job(store)).result == "2"

    @case
    async def test_late_holder_is_refused_before_the_next_claim(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job())
        late = await claim_one(store)
        clock.advance(milliseconds=LEASE_MS)
        assert await store.release_expired() == 1
        assert await store.finish([decide(late, Succeeded())]) == [A]
        assert await path(store) == ["queued", "processing", "queued"]

    @case
    async def test_lease_that_ended_unnoticed_still_stands(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        clock.advance(milliseconds=LEASE_MS * 2)
        await end(store, job, Succeeded())
        assert (await the_job(store)).finished_at_ms == START_MS + 2 * LEASE_MS

    @case
    async def test_attempt_is_finished_once(self, store: Store) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        done = decide(job, Succeeded("1"))
        assert await store.finish([done, decide(job, Failed("no luck"))]) == [A]
        assert await store.finish([done]) == [A]
        assert await path(store) == ["queued", "processing", "succeeded"]

    @case
    async def test_late_word_does_not_hide_the_current_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A stale and a current completion of one job in a batch: only the current one counts."""
        await insert(store, a_job())
        late = await claim_one(store)
        clock.advance(milliseconds=LEASE_MS)
        current = await claim_one(store)
        words = [decide(late, Released()), decide(current, Succeeded("2"))]
        assert await store.finish(words) == [A]
        assert (await the_job(store)).state is JobState.SUCCEEDED

    @case
    async def test_void_finishes_stop_no_others(self, store: Store) -> None:
        for name in "abcd":
            await insert(store, a_job(name))
        a, b, c, d = (await claims(store)).jobs
        finishes = [
            decide(a._replace(fence=7), Succeeded()),
            decide(b, Succeeded()),
            decide(c._replace(id=JobId("nobody")), Succeeded()),
            decide(c, Failed("no luck")),
            decide(d, Released()),
        ]
        assert await store.finish(finishes) == ["a", "nobody"]
        states = [(await the_job(store, name)).state.value for name in "abcd"]
        assert states == ["processing", "succeeded", "retrying", "queued"]
        assert await store.finish([]) == []

    @pytest.mark.parametrize("state", [each for each in RESTING if each is not JobState.PROCESSING])
    @case
    async def test_only_running_jobs_are_finished(self, store: Store, state: JobState) -> None:
        before = await bring_to(store, state)
        done = Finish(A, before.fence, JobState.SUCCEEDED, "succeeded", 1)
        assert await store.finish([done]) == [A]
        assert await the_job(store) == before

    @pytest.mark.parametrize("via", [None, JobState.FAILED])
    @pytest.mark.parametrize("state", list(JobState))
    @case
    async def test_finish_keeps_to_the_table(
        self, store: Store, state: JobState, via: JobState | None
    ) -> None:
        await insert(store, a_job())
        job = await claim_one(store)
        done = Finish(A, job.fence, state, "failed", 1, via)
        if state in (FROM_PROCESSING if via is None else FROM_FAILED):
            assert await store.finish([done]) == []
            assert (await the_job(store)).state is state
            return
        with pytest.raises(InvalidInput):
            await store.finish([done])
        assert await path(store) == ["queued", "processing"]

    @case
    async def test_delay_of_nothing_is_due_at_once(self, store: Store, clock: ManualClock) -> None:
        await insert(store, a_job(retry=RetryPolicy(backoff="none")))
        job = await claim_one(store)
        clock.advance(seconds=1)
        await end(store, job, Failed("no luck"))
        assert (await the_job(store)).run_at_ms == START_MS + 1_000
        assert (await claim_one(store, BOB)).fence == 2
