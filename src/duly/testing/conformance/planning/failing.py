"""Schedules are paused after as many consecutive failures as their policy allows."""

from __future__ import annotations

from duly.model.schedules import Limits, Policies, ScheduleId
from duly.rules.outcomes import Cancelled, Failed, Outcome, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.samples import jobs_of, next_hour, plan, states
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    a_definition,
    a_key,
    a_write,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import every

ID = ScheduleId("id-a")
POLICIES = Policies(pause_after_failures=3)
DEAD = Failed("no hope", is_final=True)


async def runs(store: Store, clock: ManualClock, *outcomes: Outcome) -> None:
    """Run the schedule once an hour, with these outcomes."""
    for outcome in outcomes:
        await next_hour(store, clock)
        await end(store, await claim_one(store), outcome)


class FailingCases(StoreConformance):
    """Cases for pause_failing()."""

    @case
    async def test_failures_in_a_row_pause(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(policies=POLICIES)))
        await runs(store, clock, DEAD, DEAD)
        assert await store.pause_failing(ID) is None
        await runs(store, clock, DEAD)
        paused = await store.pause_failing(ID)
        assert paused is not None
        assert paused == await store.get_schedule(a_key())
        assert (paused.state, paused.definition.enabled, paused.version) == ("paused", False, 2)
        assert paused.definition.note == "paused after 3 failures in a row"
        assert await store.list_rows() == []
        event = (await store.schedule_events(ID))[-1]
        assert (event.kind, event.by) == ("paused", "duly")
        assert event.detail == {"note": "paused after 3 failures in a row"}
        assert await store.pause_failing(ID) is None

    @case
    async def test_success_between_ends_the_row(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(policies=POLICIES)))
        await runs(store, clock, DEAD, DEAD, Succeeded(), DEAD, DEAD)
        assert await store.pause_failing(ID) is None
        await runs(store, clock, DEAD)
        assert await store.pause_failing(ID) is not None

    @case
    async def test_runs_that_were_cancelled_count_for_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Cancelled runs, requested or planned, neither extend nor end a series of failures."""
        await put(store, a_write(definition=a_definition(policies=POLICIES)))
        await runs(store, clock, DEAD, DEAD, Cancelled(), Cancelled())
        clock.advance(minutes=1)
        assert await store.run_now(ID, "by hand") is not None
        await end(store, await claim_one(store), Cancelled())
        assert await states(store) == ["failed"] * 5
        rows = await store.list_occurrences(ID)
        assert [row.reason for row in rows] == ["run_now", "cancelled", "cancelled", None, None]
        assert await store.pause_failing(ID) is None
        await runs(store, clock, DEAD)
        assert await store.pause_failing(ID) is not None

    @case
    async def test_occurrences_that_did_not_run_count_for_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(policies=POLICIES)))
        await runs(store, clock, DEAD, DEAD)
        await next_hour(store, clock)
        skipped = (await jobs_of(store))[-1]
        await store.cancel_job(skipped.id)
        assert await states(store) == ["failed", "failed", "skipped"]
        assert await store.pause_failing(ID) is None
        await runs(store, clock, DEAD)
        assert await store.pause_failing(ID) is not None

    @case
    async def test_order_is_that_of_the_ends(self, store: Store, clock: ManualClock) -> None:
        """Runs are ordered by their end: a long run that ends last is the newest."""
        definition = a_definition(policies=Policies(pause_after_failures=1, overlap="allow"))
        await put(store, a_write(definition=definition))
        await next_hour(store, clock)
        long = await claim_one(store, lease_ms=9 * HOUR_MS)
        await runs(store, clock, DEAD)
        clock.advance(minutes=1)
        await end(store, long, Succeeded())
        assert await store.pause_failing(ID) is None

    @case
    async def test_resume_counts_anew(self, store: Store, clock: ManualClock) -> None:
        definition = a_definition(policies=POLICIES)
        await put(store, a_write(definition=definition))
        await runs(store, clock, DEAD, DEAD, DEAD)
        assert await store.pause_failing(ID) is not None
        clock.advance(minutes=1)
        await put(store, a_write(definition=definition))
        assert await store.pause_failing(ID) is None
        await runs(store, clock, DEAD, DEAD)
        assert await store.pause_failing(ID) is None
        await runs(store, clock, DEAD)
        assert await store.pause_failing(ID) is not None

    @case
    async def test_without_the_policy_nothing_is_paused(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        await runs(store, clock, *[DEAD] * 5)
        assert await store.pause_failing(ID) is None
        assert await store.pause_failing(ScheduleId("nobody")) is None

    @case
    async def test_pause_for_failures_withdraws(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(policies=POLICIES)))
        await runs(store, clock, DEAD, DEAD, DEAD)
        clock.advance(minutes=59, seconds=30)
        await plan(store, look_ahead_ms=MINUTE_MS)
        await store.pause_failing(ID)
        assert (await states(store))[-1] == "withdrawn"
        (*_, job) = await jobs_of(store)
        last = (await store.job_events(job.id))[-1]
        assert (last.actor, last.reason) == ("duly", "withdrawn: schedule paused")

    @case
    async def test_limits_of_the_owner_stop_no_pause(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A pause does not apply the owner's limits to the schedule."""
        definition = a_definition(
            every(seconds=10), policies=Policies(pause_after_failures=1, overlap="allow")
        )
        wide = Limits(shortest_interval_ms=1_000)
        await put(store, a_write(definition=definition, limits=wide))
        clock.advance(seconds=10)
        await end(store, await claim_one(store), DEAD)
        assert await store.pause_failing(ID) is not None
