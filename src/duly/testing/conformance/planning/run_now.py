"""Extra runs, requested with run_now(): one per request id."""

from __future__ import annotations

from hashlib import sha256

import pytest

from duly.errors import InvalidInput
from duly.model.index import ReconcileReport
from duly.model.jobs import JobState
from duly.model.schedules import Policies, ScheduleId
from duly.rules.outcomes import Failed, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, claimed, end, path
from duly.testing.conformance.planning.samples import (
    jobs_of,
    ledger,
    line,
    next_hour,
    only_occurrence,
    plan,
    put_hourly,
    states,
)
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    ONCE,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

ID = ScheduleId("id-a")


def extra_id(request_id: str) -> str:
    """Return the job id of a request."""
    return "job_" + sha256(f"run_now/id-a/{request_id}".encode()).hexdigest()[:32]


class RunNowCases(StoreConformance):
    """Cases for run_now() and find_schedule()."""

    @case
    async def test_extra_run_is_an_occurrence_with_a_job(
        self, store: Store, clock: ManualClock
    ) -> None:
        policies = Policies(priority=7, timeout_ms=1_234)
        await put(store, a_write(definition=a_definition(input="now", policies=policies)))
        clock.advance(minutes=10)
        extra = await store.run_now(ID, "one")
        assert extra is not None
        assert extra == await only_occurrence(store)
        assert extra.nominal_ms == extra.run_at_ms == START_MS + 10 * MINUTE_MS
        assert (extra.state.value, extra.reason) == ("planned", "run_now")
        assert (extra.flow, extra.scope, extra.name) == ("reminders", "user:ada", "a")
        (job,) = await jobs_of(store)
        assert job.id == extra.job_id == extra_id("one")
        assert (job.state, job.turn, job.input) == (JobState.QUEUED, "asks", '"now"')
        assert (job.priority, job.timeout_ms) == (7, 1_234)
        assert (job.workspace, job.scope) == ("user:ada", "user:ada")
        assert job.nominal_ms == extra.nominal_ms

    @case
    async def test_same_request_gives_the_same_run(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        first = await store.run_now(ID, "one")
        clock.advance(minutes=10)
        assert await store.run_now(ID, "one") == first
        await end(store, await claim_one(store), Succeeded())
        again = await store.run_now(ID, "one")
        assert again is not None
        assert again.state.value == "succeeded"
        assert len(await jobs_of(store)) == 1
        assert await store.run_now(ID, "two") != again
        assert len(await jobs_of(store)) == 2

    @case
    async def test_requests_of_two_schedules_are_two(self, store: Store) -> None:
        await put(store, a_write("a"), a_write("b"))
        first = await store.run_now(ID, "one")
        second = await store.run_now(ScheduleId("id-b"), "one")
        assert first is not None
        assert second is not None
        assert first.job_id != second.job_id

    @case
    async def test_extra_run_does_not_move_the_hand(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(max_runs=2)))
        before = await only_row(store)
        await store.run_now(ID, "one")
        assert await only_row(store) == before
        await end(store, await claim_one(store), Succeeded())
        assert (await next_hour(store, clock)).planned == 1
        assert await states(store) == ["succeeded", "planned"]

    @case
    async def test_two_at_one_instant_have_two_times(self, store: Store) -> None:
        await put_hourly(store, "allow")
        extras = [await store.run_now(ID, request_id) for request_id in ("one", "two", "three")]
        times = [extra.nominal_ms - START_MS for extra in extras if extra is not None]
        assert len(set(times)) == 3
        assert max(times) < 10
        assert await line(store) == [("queued", False)] * 3

    @case
    async def test_extra_run_takes_no_time_of_the_schedule(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store, "allow")
        clock.advance(hours=1)
        extra = await store.run_now(ID, "one")
        assert extra is not None
        assert extra.nominal_ms != START_MS + HOUR_MS
        assert (await plan(store)).planned == 1
        assert len(await jobs_of(store)) == 2

    @case
    async def test_paused_and_finished_schedules_run_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        paused, finished = a_definition(enabled=False), a_definition(ONCE)
        external = a_definition(hand_over="external")
        await put(store, a_write("a", paused), a_write("b", finished), a_write("c", external))
        clock.advance(seconds=1)
        for name in "abc":
            assert await store.run_now(ScheduleId(f"id-{name}"), "one") is not None
            assert await line(store, name) == [("queued", False)]
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "paused"
        assert await store.list_rows() == []

    @case
    async def test_nobody_has_no_extra_run(self, store: Store) -> None:
        assert await store.run_now(ScheduleId("nobody"), "one") is None
        assert await store.count_jobs() == []

    @case
    async def test_senseless_requests_for_a_run_are_refused(self, store: Store) -> None:
        await put(store, a_write())
        for request_id in ("", "x" * 256, "a\0b"):
            with pytest.raises(InvalidInput, match="request_id"):
                await store.run_now(ID, request_id)
        assert await store.run_now(ID, "ü" * 255) is not None

    @case
    async def test_extra_run_is_skipped_by_policy(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store)
        await next_hour(store, clock)
        clock.advance(minutes=10)
        (job,) = await jobs_of(store)
        skipped = await store.run_now(ID, "one")
        assert skipped is not None
        assert (skipped.state.value, skipped.job_id) == ("skipped", None)
        assert skipped.reason == f"job {job.id} had not ended"
        assert skipped.ended_at_ms == skipped.nominal_ms
        assert len(await jobs_of(store)) == 1
        await end(store, await claim_one(store), Succeeded())
        clock.advance(minutes=1)
        assert await store.run_now(ID, "one") == skipped
        again = await store.run_now(ID, "two")
        assert again is not None
        assert again.state.value == "planned"

    @case
    async def test_extra_run_stands_in_line(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "buffer_one")
        await next_hour(store, clock)
        clock.advance(minutes=10)
        extra = await store.run_now(ID, "one")
        assert extra is not None
        assert await line(store) == [("queued", False), ("scheduled", True)]
        assert (await next_hour(store, clock)).skipped == 1
        await end(store, await claim_one(store), Succeeded())
        assert await claimed(store) == [extra.job_id]

    @case
    async def test_extra_run_cancels_what_runs(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "cancel_running")
        await next_hour(store, clock)
        clock.advance(minutes=10)
        extra = await store.run_now(ID, "one")
        assert extra is not None
        assert extra.job_id is not None
        assert await line(store) == [("cancelled", False), ("queued", False)]
        assert await path(store, extra.job_id) == ["queued"]

    @case
    async def test_run_after_an_extra_run_has_turns_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store)
        clock.advance(minutes=50)
        await store.run_now(ID, "one")
        clock.advance(minutes=10)
        assert (await plan(store)).skipped == 1

    @case
    async def test_extra_run_that_failed_says_so(self, store: Store) -> None:
        await put_hourly(store)
        await store.run_now(ID, "one")
        await end(store, await claim_one(store), Failed("no", is_final=True))
        assert await states(store) == ["failed"]

    @case
    async def test_lost_rows_do_not_count_extra_runs(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(max_runs=3)))
        right = await only_row(store)
        clock.advance(minutes=70)
        await store.run_now(ID, "one")
        await store.run_now(ID, "two")
        assert await states(store) == ["planned", "skipped"]
        await store.remove(a_key())
        assert await store.reconcile() == ReconcileReport(checked=1, added=1)
        repaired = await only_row(store)
        assert (repaired.nominal_ms, repaired.runs_left) == (right.nominal_ms, 3)

    @case
    async def test_schedules_are_found_by_their_ids(self, store: Store) -> None:
        await put(store, a_write("a"), a_write("b"))
        found = await store.find_schedule(ScheduleId("id-b"))
        assert found is not None
        assert found == await store.get_schedule(a_key("b"))
        assert await store.find_schedule(ScheduleId("nobody")) is None
        await store.delete_schedule(a_key("b"))
        assert await store.find_schedule(ScheduleId("id-b")) is None
        assert await ledger(store, "b") == []
