"""The ledger follows its job: started, finished, lost, cancelled and retried."""

from __future__ import annotations

from duly.model.jobs import JobState, LeasedJob
from duly.model.ledger import Occurrence
from duly.model.retries import RetryPolicy
from duly.model.schedules import Policies
from duly.model.stored_jobs import JobRefused, Retention
from duly.rules.outcomes import Cancelled, Denied, Failed, Outcome, Released, Succeeded, decide
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ADA,
    LEASE_MS,
    PLAIN,
    a_job,
    claim_one,
    claims,
    end,
    insert,
    path,
    the_job,
)
from duly.testing.conformance.planning.samples import jobs_of, only_occurrence, plan, plan_one
from duly.testing.conformance.samples import HOUR_MS, START_MS, a_definition, a_write, put
from duly.testing.conformance.suite import StoreConformance, case

AT_MS = START_MS + HOUR_MS
TRIES = Policies(retry=PLAIN)
ONE_TRY = Policies(retry=RetryPolicy(attempts=1))
Stand = tuple[str, int | None, int | None]


def stand(occurrence: Occurrence) -> Stand:
    """Return the state, and start and end in ms after the time of the occurrence."""
    fired, ended = occurrence.fired_at_ms, occurrence.ended_at_ms
    return (
        occurrence.state.value,
        None if fired is None else fired - AT_MS,
        None if ended is None else ended - AT_MS,
    )


class FollowCases(StoreConformance):
    """Cases for an occurrence that follows its job."""

    async def stands(self, store: Store) -> Stand:
        """Return state, start and end of the only occurrence."""
        return stand(await only_occurrence(store))

    async def begun(self, store: Store, clock: ManualClock, policies: Policies) -> LeasedJob:
        """Return a planned job that began 100 ms after its time."""
        await plan_one(store, clock, policies=policies)
        clock.advance(milliseconds=100)
        return await claim_one(store, lease_ms=LEASE_MS)

    @case
    async def test_success_from_plan_to_end(self, store: Store, clock: ManualClock) -> None:
        job_id = await plan_one(store, clock)
        assert await self.stands(store) == ("planned", None, None)
        clock.advance(milliseconds=100)
        job = await claim_one(store)
        assert (job.id, job.schedule_id, job.nominal_ms) == (job_id, "id-a", AT_MS)
        assert await self.stands(store) == ("fired", 100, None)
        clock.advance(milliseconds=50)
        await end(store, job, Succeeded('"done"'))
        assert await self.stands(store) == ("succeeded", 100, 150)
        assert (await only_occurrence(store)).job_id == job_id
        assert await path(store, job_id) == ["queued", "processing", "succeeded"]

    @case
    async def test_waiting_for_the_time_is_planned(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(hours=1)
        assert await store.promote_due() == 1
        assert await self.stands(store) == ("planned", None, None)
        await claim_one(store)
        assert await self.stands(store) == ("fired", 0, None)

    @case
    async def test_retries_stay_fired_until_the_last(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await self.begun(store, clock, TRIES)
        for _ in range(2):
            await end(store, job, Failed("no luck"))
            assert await self.stands(store) == ("fired", 100, None)
            clock.advance(seconds=1)
            job = await claim_one(store)
            assert await self.stands(store) == ("fired", 100, None)
        await end(store, job, Failed("no luck"))
        assert await self.stands(store) == ("failed", 100, 2_100)
        assert (await the_job(store, job.id)).state is JobState.DEAD

    @case
    async def test_success_after_a_failure(self, store: Store, clock: ManualClock) -> None:
        await end(store, await self.begun(store, clock, TRIES), Failed("no luck"))
        clock.advance(seconds=1)
        await end(store, await claim_one(store), Succeeded())
        assert await self.stands(store) == ("succeeded", 100, 1_100)

    @case
    async def test_poison_fails_its_occurrence(self, store: Store, clock: ManualClock) -> None:
        """A job whose workers keep dying is dead at its cap, and so is its occurrence."""
        job = await self.begun(store, clock, ONE_TRY)
        clock.advance(milliseconds=LEASE_MS)
        assert await store.release_expired() == 1
        assert await self.stands(store) == ("fired", 100, None)
        for fence in (2, 3):
            await claim_one(store, lease_ms=LEASE_MS)
            await store.start_jobs(ADA, [(job.id, fence)])
            clock.advance(milliseconds=LEASE_MS)
            assert await store.release_expired() == 1
        assert (await the_job(store, job.id)).state is JobState.DEAD
        assert await self.stands(store) == ("failed", 100, 100 + 3 * LEASE_MS)

    @case
    async def test_rescue_in_a_claim_is_followed_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await self.begun(store, clock, Policies(delivery="at_most_once"))
        await store.start_jobs(ADA, [(job.id, job.fence)])
        clock.advance(milliseconds=LEASE_MS)
        await insert(store, a_job("other"))
        assert (await claim_one(store)).id == "other"
        assert await self.stands(store) == ("failed", 100, 100 + LEASE_MS)

    @case
    async def test_lost_with_the_wish_to_cancel_has_failed(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await self.begun(store, clock, TRIES)
        await store.cancel_job(job.id)
        assert await self.stands(store) == ("fired", 100, None)
        clock.advance(milliseconds=LEASE_MS)
        assert await store.release_expired() == 1
        assert (await the_job(store, job.id)).state is JobState.CANCELLED
        assert await self.stands(store) == ("failed", 100, 100 + LEASE_MS)

    @case
    async def test_cancelled_at_work_has_failed(self, store: Store, clock: ManualClock) -> None:
        job = await self.begun(store, clock, TRIES)
        await end(store, job, Cancelled())
        assert await self.stands(store) == ("failed", 100, 100)

    @case
    async def test_denied_is_not_failed(self, store: Store, clock: ManualClock) -> None:
        """A denial before the handler starts cancels the job, and does not count as a failure."""
        job = await self.begun(store, clock, TRIES)
        clock.advance(milliseconds=50)
        await end(store, job, Denied("not any more"))
        assert await self.stands(store) == ("denied", 100, 150)
        found = await the_job(store, job.id)
        assert (found.state, found.error) == (JobState.CANCELLED, "denied: not any more")
        (attempt,) = await store.job_attempts(job.id)
        assert (attempt.status, attempt.error) == ("denied", "denied: not any more")

    @case
    async def test_denied_and_cancelled_in_one_step_are_told_apart(
        self, store: Store, clock: ManualClock
    ) -> None:
        for name in ("a", "b"):
            await put(store, a_write(name, a_definition()))
        clock.advance(hours=1)
        await plan(store)
        jobs = {job.schedule_id: job for job in (await claims(store, limit=2)).jobs}
        outcomes: dict[str, Outcome] = {"id-a": Denied("no"), "id-b": Cancelled()}
        ends = [decide(jobs[name], outcome) for name, outcome in outcomes.items()]
        assert await store.finish(ends) == []
        states = [(await only_occurrence(store, name)).state.value for name in ("a", "b")]
        assert states == ["denied", "failed"]

    @case
    async def test_failure_after_a_wish_to_cancel_has_failed(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A failure after a cancel request cancels the job; its occurrence has failed."""
        job = await self.begun(store, clock, TRIES)
        await store.cancel_job(job.id)
        await end(store, job, Failed("no luck"))
        assert (await the_job(store, job.id)).state is JobState.CANCELLED
        assert await self.stands(store) == ("failed", 100, 100)

    @case
    async def test_cancelled_before_it_began_is_skipped(
        self, store: Store, clock: ManualClock
    ) -> None:
        job_id = await plan_one(store, clock)
        clock.advance(milliseconds=7)
        await store.cancel_job(job_id)
        assert await self.stands(store) == ("skipped", None, 7)

    @case
    async def test_cancelled_before_its_time_is_skipped(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        await plan(store, look_ahead_ms=HOUR_MS)
        (job,) = await jobs_of(store)
        assert job.state is JobState.SCHEDULED
        await store.cancel_job(job.id)
        assert await self.stands(store) == ("skipped", None, -HOUR_MS)
        clock.advance(hours=1)
        assert (await plan(store)).planned == 0

    @case
    async def test_cancelled_between_tries_has_failed(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await self.begun(store, clock, TRIES)
        await end(store, job, Failed("no luck"))
        await store.cancel_job(job.id)
        assert await self.stands(store) == ("failed", 100, 100)

    @case
    async def test_deleted_before_it_began_is_skipped(
        self, store: Store, clock: ManualClock
    ) -> None:
        job_id = await plan_one(store, clock)
        await store.delete_job(job_id)
        assert await self.stands(store) == ("skipped", None, 0)

    @case
    async def test_deleting_what_ended_changes_no_history(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await self.begun(store, clock, TRIES)
        await end(store, job, Succeeded())
        clock.advance(minutes=1)
        await store.delete_job(job.id)
        assert (await the_job(store, job.id)).state is JobState.DELETED
        assert await self.stands(store) == ("succeeded", 100, 100)

    @case
    async def test_dead_job_taken_up_again_is_fired(self, store: Store, clock: ManualClock) -> None:
        job = await self.begun(store, clock, TRIES)
        await end(store, job, Failed("no hope", is_final=True))
        assert await self.stands(store) == ("failed", 100, 100)
        clock.advance(seconds=9)
        await store.retry_job(job.id)
        assert await self.stands(store) == ("fired", 100, None)
        await end(store, await claim_one(store), Succeeded())
        assert await self.stands(store) == ("succeeded", 100, 9_100)

    @case
    async def test_given_back_stays_fired(self, store: Store, clock: ManualClock) -> None:
        job = await self.begun(store, clock, TRIES)
        await end(store, job, Released())
        assert await self.stands(store) == ("fired", 100, None)

    @case
    async def test_refused_wishes_change_nothing(self, store: Store, clock: ManualClock) -> None:
        job = await self.begun(store, clock, TRIES)
        await end(store, job, Succeeded())
        for answer in (await store.cancel_job(job.id), await store.retry_job(job.id)):
            assert isinstance(answer, JobRefused)
        assert await self.stands(store) == ("succeeded", 100, 100)

    @case
    async def test_late_holder_changes_no_occurrence(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await self.begun(store, clock, TRIES)
        clock.advance(milliseconds=LEASE_MS)
        successor = await claim_one(store)
        late = await store.finish([decide(job, Succeeded())])
        assert late == [job.id]
        assert await self.stands(store) == ("fired", 100, None)
        await end(store, successor, Succeeded())
        assert await self.stands(store) == ("succeeded", 100, 100 + LEASE_MS)

    @case
    async def test_jobs_that_were_not_planned_move_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Only the job named in the ledger changes its occurrence."""
        await plan_one(store, clock)
        await insert(store, a_job("other", schedule_id="id-a", nominal_ms=AT_MS))
        await insert(store, a_job("alien", schedule_id="id-nobody", nominal_ms=AT_MS))
        for name in ("other", "alien"):
            assert not isinstance(await store.cancel_job(a_job(name).id), JobRefused)
        assert await self.stands(store) == ("planned", None, None)

    @case
    async def test_history_outlives_the_job(self, store: Store, clock: ManualClock) -> None:
        job = await self.begun(store, clock, TRIES)
        await end(store, job, Succeeded())
        before = await only_occurrence(store)
        clock.advance(hours=1)
        assert await store.prune(Retention(succeeded_ms=1)) == 1
        assert await store.get_job(job.id) is None
        assert await only_occurrence(store) == before

    @case
    async def test_many_ends_at_once_reach_their_own(
        self, store: Store, clock: ManualClock
    ) -> None:
        names = [f"{number:02}" for number in range(20)]
        once = a_definition(policies=ONE_TRY)
        await put(store, *(a_write(name, once) for name in names))
        clock.advance(hours=1)
        await plan(store)
        jobs = (await claims(store)).jobs
        odd = {f"id-{name}" for name in names if int(name) % 2}
        ends = [decide(j, Succeeded() if j.schedule_id in odd else Failed("no")) for j in jobs]
        assert await store.finish(ends) == []
        for name in names:
            expected = "succeeded" if int(name) % 2 else "failed"
            assert (await only_occurrence(store, name)).state.value == expected
