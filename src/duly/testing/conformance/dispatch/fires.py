"""Fires of an endpoint: one job per occurrence and per key, and the overlap policy applies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from duly.errors import InvalidInput
from duly.model.dispatches import Duplicate, Fire, Fired
from duly.model.jobs import Job, JobId
from duly.model.schedules import Misfire
from duly.model.stored_jobs import JobFilter
from duly.rules.outcomes import Failed, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import (
    AT_MS,
    a_job,
    a_post,
    answer,
    claim,
    claim_one,
    fire,
)
from duly.testing.conformance.index.quarantine import BAD
from duly.testing.conformance.jobs.samples import claim_one as take_job
from duly.testing.conformance.jobs.samples import end
from duly.testing.conformance.planning.samples import (
    jobs_of,
    ledger,
    only_occurrence,
    plan_one,
    states,
)
from duly.testing.conformance.samples import (
    FLOW,
    HOUR_MS,
    SCOPE,
    START_MS,
    a_key,
    a_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case

J1 = Fired(JobId("j1"))


async def all_jobs(store: Store) -> list[Job]:
    """Return all jobs."""
    return await store.list_jobs(JobFilter())


class FireCases(StoreConformance):
    """Cases for fires of free and taken times."""

    @case
    async def test_dispatch_becomes_a_job(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        clock.advance(seconds=1)
        assert await fire(store, input='{"n":1}') == J1
        (job,) = await jobs_of(store)
        assert (job.id, job.state.value, job.input) == ("j1", "queued", '{"n":1}')
        assert (job.nominal_ms, job.run_at_ms) == (AT_MS, AT_MS + 1_000)
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.job_id) == ("fired", "j1")
        assert (occurrence.run_at_ms, occurrence.fired_at_ms) == (AT_MS, AT_MS + 1_000)
        clock.advance(minutes=5)
        assert await claim(store, "two") == []
        assert await answer(store, dispatching, "closed") == 0

    @case
    async def test_job_takes_its_occurrence_along(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        await fire(store)
        await end(store, await take_job(store), Succeeded())
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.ended_at_ms) == ("succeeded", AT_MS)

    @case
    async def test_schedule_need_not_be_stored(self, store: Store) -> None:
        assert await fire(store, name="unknown") == J1
        occurrence = await only_occurrence(store, "unknown")
        assert (occurrence.flow, occurrence.scope, occurrence.name) == (FLOW, SCOPE, "unknown")
        assert (occurrence.state.value, occurrence.job_id) == ("fired", "j1")
        assert (occurrence.nominal_ms, occurrence.run_at_ms) == (AT_MS, AT_MS)
        assert (occurrence.until_ms, occurrence.count) == (AT_MS, 1)

    @case
    async def test_repeated_call_is_harmless(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        assert await fire(store, key="k") == J1
        before = await ledger(store)
        assert await fire(store, key="k") == J1
        assert await ledger(store) == before
        assert len(await all_jobs(store)) == 1

    @case
    async def test_second_job_of_a_time_is_a_duplicate(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_one(store, clock)
        await fire(store)
        assert await fire(store, "j2") == Duplicate(JobId("j1"))
        assert [job.id for job in await all_jobs(store)] == ["j1"]

    @case
    async def test_fired_at_once_fires_once(self, store: Store) -> None:
        """Concurrent fires of one time create one job; the others are duplicates."""
        answers = await asyncio.gather(*(fire(store, f"j{number}") for number in range(6)))
        assert len([each for each in answers if isinstance(each, Fired)]) == 1
        (job,) = await all_jobs(store)
        assert answers.count(Duplicate(job.id)) == 5
        assert (await only_occurrence(store)).job_id == job.id

    @case
    async def test_same_call_at_once_makes_one_job(self, store: Store) -> None:
        answers = await asyncio.gather(*(fire(store, key="k") for _ in range(4)))
        assert answers == [J1] * 4
        assert await fire(store, "j2", nominal_ms=AT_MS + 1, key="k") == Duplicate(JobId("j1"))

    @case
    async def test_late_endpoint_meets_what_ended(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock, delivery="at_most_once")
        clock.advance(minutes=1)
        assert await claim(store, "two") == []
        assert await fire(store) == Duplicate(None)
        assert (await states(store), await all_jobs(store)) == (["failed"], [])

    @case
    async def test_late_endpoint_is_in_time_while_nobody_has_ended_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_one(store, clock, delivery="at_most_once")
        clock.advance(minutes=9)
        assert await fire(store) == J1
        assert await claim(store, "two") == []
        assert await states(store) == ["fired"]

    @case
    async def test_posted_again_is_fired_once(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        clock.advance(minutes=1)
        (second,) = await claim(store, "two")
        assert await fire(store) == J1
        assert await answer(store, second, "again", claim_id="two", reason="timed out") == 0
        clock.advance(minutes=5)
        assert await claim(store, "three") == []

    @case
    async def test_swallowed_times_are_taken(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post(misfire=Misfire(kind="skip")))
        clock.advance(hours=3, minutes=30)
        assert await claim(store) == []
        for number, nominal_ms in enumerate((AT_MS, AT_MS + HOUR_MS, AT_MS + 2 * HOUR_MS)):
            answered = await fire(store, f"j{number}", nominal_ms=nominal_ms)
            assert answered == Duplicate(None)
        assert (await states(store), await all_jobs(store)) == (["missed"], [])
        assert isinstance(await fire(store, "j9", nominal_ms=AT_MS + 3 * HOUR_MS), Fired)

    @case
    async def test_planned_times_are_taken(self, store: Store, clock: ManualClock) -> None:
        job_id = await plan_one(store, clock)
        assert await fire(store) == Duplicate(job_id)
        assert len(await all_jobs(store)) == 1

    @case
    async def test_withdrawn_times_are_free(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        await store.delete_schedule(a_key())
        clock.advance(minutes=1)
        assert await claim(store, "two") == []
        assert await states(store) == ["withdrawn"]
        assert await fire(store) == J1
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("fired", None)

    @case
    async def test_quarantined_times_are_free(self, store: Store, clock: ManualClock) -> None:
        """A quarantined time can be fired if its definition is kept elsewhere."""
        at = START + timedelta(hours=1)
        await store.upsert(replace(a_row(at=at, hand_over="http"), trigger=BAD))
        clock.advance(hours=1)
        assert await claim(store) == []
        assert await states(store) == ["quarantined"]
        assert await fire(store) == J1
        assert await states(store) == ["fired"]

    @case
    async def test_job_for_later_is_planned(self, store: Store) -> None:
        assert await fire(store, run_at_ms=START_MS + 5_000) == J1
        (job,) = await all_jobs(store)
        occurrence = await only_occurrence(store)
        assert (job.state.value, occurrence.state.value) == ("scheduled", "planned")
        assert occurrence.fired_at_ms is None

    @case
    async def test_dead_job_fails_its_occurrence(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        await fire(store, delivery="at_most_once")
        await end(store, await take_job(store), Failed("broken"))
        assert await states(store) == ["failed"]

    @case
    async def test_impossible_fires_are_refused(self, store: Store) -> None:
        for wrong in ({"schedule_id": None}, {"nominal_ms": 7}, {"turn": "asks"}):
            with pytest.raises(InvalidInput):
                await store.fire(Fire(a_job(**wrong), FLOW, SCOPE, "a"))
        assert await all_jobs(store) == []
