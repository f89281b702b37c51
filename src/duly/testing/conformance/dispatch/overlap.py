"""Keys and overlap policies of fires: an answer without a job takes neither key nor marker."""

from __future__ import annotations

import msgspec

from duly.model.dispatches import Duplicate, Fired, Overlapped
from duly.model.jobs import JobId, JobState, NewJob
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import AT_MS, a_job, claim_one, fire, turning
from duly.testing.conformance.jobs.samples import claim_one as take_job
from duly.testing.conformance.jobs.samples import end, the_job
from duly.testing.conformance.planning.samples import ledger, states
from duly.testing.conformance.samples import HOUR_MS
from duly.testing.conformance.suite import StoreConformance, case

J1, J2 = JobId("j1"), JobId("j2")
NEXT_MS = AT_MS + HOUR_MS
SKIP, BUFFER, CANCEL = turning("skip"), turning("buffer_one"), turning("cancel_running")


async def state_of(store: Store, job_id: JobId) -> str:
    """Return the state of a job."""
    return (await the_job(store, job_id)).state.value


async def finish_next(store: Store) -> JobId:
    """Claim the next job, finish it successfully, and return its id."""
    leased = await take_job(store)
    await end(store, leased, Succeeded())
    return leased.id


class FireKeyCases(StoreConformance):
    """Cases for idempotency keys of dispatches."""

    @case
    async def test_key_stands_for_the_first(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        assert await fire(store, nominal_ms=NEXT_MS, key="k") == Fired(J1)
        assert await fire(store, "j2", key="k") == Duplicate(J1)
        assert await states(store) == ["dispatching", "fired"]
        assert await store.get_job(J2) is None

    @case
    async def test_key_stands_whatever_the_input(self, store: Store) -> None:
        await fire(store, key="k", input="1")
        assert await fire(store, "j2", nominal_ms=NEXT_MS, key="k", input="2") == Duplicate(J1)

    @case
    async def test_keys_of_the_queue_are_the_same_keys(self, store: Store) -> None:
        await fire(store, key="k")
        (enqueued,) = await store.insert_jobs([_plain("j2", "k")])
        assert enqueued.job_id == J1
        await store.insert_jobs([_plain("j3", "other")])
        assert await fire(store, "j4", nominal_ms=NEXT_MS, key="other") == Duplicate(JobId("j3"))

    @case
    async def test_duplicate_takes_no_key(self, store: Store) -> None:
        await fire(store)
        assert await fire(store, "j2", key="k") == Duplicate(J1)
        assert await fire(store, "j3", nominal_ms=NEXT_MS, key="k") == Fired(JobId("j3"))

    @case
    async def test_skipped_takes_no_key(self, store: Store) -> None:
        await fire(store, **SKIP)
        assert isinstance(await fire(store, "j2", nominal_ms=NEXT_MS, key="k", **SKIP), Overlapped)
        assert await fire(store, "j3", "b", NEXT_MS, key="k") == Fired(JobId("j3"))


def _plain(job_id: str, key: str) -> NewJob:
    return msgspec.structs.replace(a_job(job_id), key=key, schedule_id=None, nominal_ms=None)


class FireTurnCases(StoreConformance):
    """Cases for overlap policies of dispatches."""

    @case
    async def test_skip_beside_a_running_one(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        assert await fire(store, nominal_ms=AT_MS - HOUR_MS, **SKIP) == Fired(J1)
        answer = await fire(store, "j2", **SKIP)
        assert isinstance(answer, Overlapped)
        assert "j1" in answer.reason
        assert answer.holder == J1
        _, skipped = await ledger(store)
        assert (skipped.state.value, skipped.reason) == ("skipped", answer.reason)
        assert (skipped.job_id, skipped.ended_at_ms, skipped.fired_at_ms) == (None, AT_MS, None)
        assert await store.get_job(J2) is None
        assert await fire(store, "j2", **SKIP) == Duplicate(None)

    @case
    async def test_turn_comes_when_the_earlier_has_ended(self, store: Store) -> None:
        await fire(store, **SKIP)
        assert await finish_next(store) == J1
        assert await fire(store, "j2", nominal_ms=NEXT_MS, **SKIP) == Fired(J2)
        assert await states(store) == ["succeeded", "fired"]

    @case
    async def test_schedules_do_not_wait_for_each_other(self, store: Store) -> None:
        await fire(store, **SKIP)
        assert await fire(store, "j2", "b", **SKIP) == Fired(J2)

    @case
    async def test_without_a_turn_all_run(self, store: Store) -> None:
        await fire(store, **SKIP)
        assert await fire(store, "j2", nominal_ms=NEXT_MS) == Fired(J2)
        assert await state_of(store, J2) == "queued"

    @case
    async def test_one_waits_its_turn(self, store: Store) -> None:
        await fire(store, **BUFFER)
        assert await fire(store, "j2", nominal_ms=NEXT_MS, **BUFFER) == Fired(J2)
        job = await the_job(store, "j2")
        assert (job.state, job.in_line) == (JobState.SCHEDULED, True)
        assert await states(store) == ["fired", "planned"]
        third = await fire(store, "j3", nominal_ms=NEXT_MS + 1, **BUFFER)
        assert isinstance(third, Overlapped)
        assert third.holder == J1
        assert await finish_next(store) == J1
        assert await finish_next(store) == J2
        assert await states(store) == ["succeeded", "succeeded", "skipped"]

    @case
    async def test_waiting_one_is_a_duplicate_too(self, store: Store) -> None:
        await fire(store, **BUFFER)
        await fire(store, "j2", nominal_ms=NEXT_MS, **BUFFER)
        assert await fire(store, "j3", nominal_ms=NEXT_MS, **BUFFER) == Duplicate(J2)
        assert await fire(store, "j2", nominal_ms=NEXT_MS, **BUFFER) == Fired(J2)

    @case
    async def test_newest_asks_the_running_one_to_stop(self, store: Store) -> None:
        await fire(store, **CANCEL)
        await take_job(store)
        assert await fire(store, "j2", nominal_ms=NEXT_MS, **CANCEL) == Fired(J2)
        assert (await the_job(store, "j1")).cancel_asked
        assert await state_of(store, J2) == "scheduled"
        assert await states(store) == ["fired", "planned"]

    @case
    async def test_newest_takes_the_place_of_one_that_has_not_begun(self, store: Store) -> None:
        await fire(store, **CANCEL)
        assert await fire(store, "j2", nominal_ms=NEXT_MS, **CANCEL) == Fired(J2)
        assert [await state_of(store, each) for each in (J1, J2)] == ["cancelled", "queued"]
        assert await states(store) == ["failed", "fired"]

    @case
    async def test_overtaken_one_is_skipped(self, store: Store) -> None:
        """With cancel_running, a job in line is skipped when a newer one is fired."""
        await fire(store, **CANCEL)
        await take_job(store)
        await fire(store, "j2", nominal_ms=NEXT_MS, **CANCEL)
        assert await fire(store, "j3", nominal_ms=NEXT_MS + 1, **CANCEL) == Fired(JobId("j3"))
        assert await states(store) == ["fired", "skipped", "planned"]
        assert await state_of(store, J2) == "cancelled"
