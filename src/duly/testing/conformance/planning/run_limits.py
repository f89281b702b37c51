"""`max_runs`: one count for every hand-over, kept across edits, pauses and repairs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from duly.model.dispatches import Duplicate, Fired, Inactive, Overlapped
from duly.model.index import ReconcileReport
from duly.model.jobs import JobId
from duly.model.schedules import Definition, HandOver, Misfire, Policies, Schedule, ScheduleId
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import claim, fire, turning
from duly.testing.conformance.index.quarantine import BAD
from duly.testing.conformance.jobs.samples import claim_one, claimed, end
from duly.testing.conformance.planning.samples import FROM_TWO, jobs_of, next_hour, plan, states
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import cron

AT_MS = START_MS + HOUR_MS
OTHER_MS = START_MS + 1
"""A time that is not the schedule's, like that of a dispatch without a nominal time."""
EXTERNAL: HandOver = "external"
USED_UP = Inactive("finished")


async def edit(store: Store, definition: Definition) -> Schedule:
    """Write a definition of the schedule; return the stored schedule."""
    await put(store, a_write(definition=definition))
    return await stands(store)


async def stands(store: Store) -> Schedule:
    """Return the stored schedule."""
    schedule = await store.get_schedule(a_key())
    assert schedule is not None
    return schedule


async def had(store: Store) -> int | None:
    """Return the stored count of runs."""
    return (await stands(store)).runs_had


def an_external(max_runs: int | None, **fields: object) -> Definition:
    """Return the definition of an hourly schedule with hand-over external."""
    return msgspec.structs.replace(a_definition(hand_over=EXTERNAL, max_runs=max_runs), **fields)


class RunsCases(StoreConformance):
    """Cases for charges and refunds of runs."""

    @case
    async def test_planned_runs_are_charged(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition(max_runs=2))
        assert await had(store) == 0
        await next_hour(store, clock)
        assert (await had(store), (await only_row(store)).runs_left) == (1, 1)
        await end(store, await claim_one(store), Succeeded())
        await next_hour(store, clock)
        assert (await had(store), (await stands(store)).state) == (2, "finished")

    @case
    async def test_claimed_runs_are_charged(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition(max_runs=2))
        clock.advance(hours=1)
        await store.claim_due()
        assert (await had(store), (await only_row(store)).runs_left) == (1, 1)

    @case
    async def test_no_limit_no_count(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition())
        await next_hour(store, clock)
        assert await fire(store, nominal_ms=OTHER_MS) == Fired(JobId("j1"))
        assert await had(store) is None

    @case
    async def test_dispatches_are_charged(self, store: Store) -> None:
        await edit(store, an_external(1))
        answers = [
            await fire(store, f"j{number}", nominal_ms=AT_MS + number) for number in range(4)
        ]
        assert answers == [Fired(JobId("j0")), USED_UP, USED_UP, USED_UP]
        assert [job.id for job in await jobs_of(store)] == ["j0"]
        assert (await had(store), (await stands(store)).state) == (1, "finished")
        assert [each.kind for each in await store.schedule_events(ScheduleId("id-a"))] == [
            "created",
            "finished",
        ]

    @case
    async def test_last_dispatch_may_be_repeated(self, store: Store) -> None:
        await edit(store, an_external(1))
        assert await fire(store, "j1") == Fired(JobId("j1"))
        assert await fire(store, "j1") == Fired(JobId("j1"))
        assert await fire(store, "j2") == Duplicate(JobId("j1"))
        assert await had(store) == 1

    @case
    async def test_refused_dispatch_takes_no_key(self, store: Store) -> None:
        await edit(store, an_external(1))
        assert await fire(store, "j1") == Fired(JobId("j1"))
        assert await fire(store, "j2", nominal_ms=OTHER_MS, key="k") == USED_UP
        await edit(store, an_external(2))
        assert await fire(store, "j3", nominal_ms=OTHER_MS, key="k") == Fired(JobId("j3"))
        assert await fire(store, "j4", nominal_ms=OTHER_MS, key="k") == Duplicate(JobId("j3"))

    @case
    async def test_dispatch_that_overlaps_is_charged(self, store: Store) -> None:
        """A dispatch skipped by overlap is charged, as a planned run is."""
        await edit(store, an_external(2))
        assert await fire(store, "j1", **turning("skip")) == Fired(JobId("j1"))
        answer = await fire(store, "j2", nominal_ms=OTHER_MS, **turning("skip"))
        assert isinstance(answer, Overlapped)
        assert (await had(store), (await stands(store)).state) == (2, "finished")

    @case
    async def test_dispatch_of_a_planned_schedule_is_charged(
        self, store: Store, clock: ManualClock
    ) -> None:
        await edit(store, a_definition(max_runs=2))
        before = await only_row(store)
        assert await fire(store, nominal_ms=OTHER_MS) == Fired(JobId("j1"))
        row = await only_row(store)
        assert (row.runs_left, row.nominal_ms) == (1, before.nominal_ms)
        assert row.version > before.version
        assert (await next_hour(store, clock)).finished == 1
        assert (await had(store), len(await jobs_of(store))) == (2, 2)

    @case
    async def test_last_dispatch_ends_the_row(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition(max_runs=1))
        assert await fire(store, nominal_ms=OTHER_MS) == Fired(JobId("j1"))
        assert (await store.list_rows(), (await stands(store)).state) == ([], "finished")
        assert (await next_hour(store, clock)).rows == 0
        assert (await store.index_health()).is_healthy

    @case
    async def test_time_dispatched_early_is_charged_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A time dispatched early is not charged again when it is due."""
        await edit(store, a_definition(max_runs=2, policies=Policies(overlap="allow")))
        clock.advance(minutes=50)
        assert await fire(store, nominal_ms=AT_MS) == Fired(JobId("j1"))
        clock.advance(minutes=10)
        await plan(store)
        row = await only_row(store)
        assert (row.nominal_ms, row.runs_left) == (AT_MS + HOUR_MS, 1)
        assert (await next_hour(store, clock)).finished == 1
        assert (await had(store), len(await jobs_of(store))) == (2, 2)

    @case
    async def test_last_time_dispatched_early_ends_nothing_else(
        self, store: Store, clock: ManualClock
    ) -> None:
        """If a planned time was dispatched early, the remaining run goes to the next time."""
        await edit(store, a_definition(max_runs=2, policies=Policies(overlap="allow")))
        assert await fire(store, nominal_ms=AT_MS) == Fired(JobId("j1"))
        assert (await next_hour(store, clock)).finished == 0
        row = await only_row(store)
        assert (row.nominal_ms, row.runs_left) == (AT_MS + HOUR_MS, 1)

    @case
    async def test_posts_are_charged_once(self, store: Store, clock: ManualClock) -> None:
        """A post is charged when a tick claims it, and not again when the endpoint fires it."""
        await edit(store, a_definition(max_runs=2, hand_over="http"))
        clock.advance(hours=1)
        assert len(await claim(store)) == 1
        assert (await had(store), (await only_row(store)).runs_left) == (1, 1)
        assert await fire(store, "j1") == Fired(JobId("j1"))
        assert await had(store) == 1
        clock.advance(hours=1)
        assert len(await claim(store, "two")) == 1
        assert (await had(store), (await stands(store)).state) == (2, "finished")
        assert await fire(store, "j2", nominal_ms=OTHER_MS) == USED_UP
        assert await fire(store, "j3", nominal_ms=AT_MS + HOUR_MS) == Fired(JobId("j3"))

    @case
    async def test_new_limit_is_measured_against_the_same_count(self, store: Store) -> None:
        await edit(store, an_external(5))
        for number in range(2):
            await fire(store, f"j{number}", nominal_ms=AT_MS + number)
        assert (await edit(store, an_external(3))).runs_had == 2
        lowered = await edit(store, an_external(2))
        assert (lowered.runs_had, lowered.state) == (2, "finished")
        assert await fire(store, "j2", nominal_ms=AT_MS + 2) == USED_UP
        raised = await edit(store, an_external(3))
        assert (raised.runs_had, raised.state == "finished") == (2, False)
        assert await fire(store, "j3", nominal_ms=AT_MS + 3) == Fired(JobId("j3"))
        assert await fire(store, "j4", nominal_ms=AT_MS + 4) == USED_UP

    @case
    async def test_limit_set_later_begins_with_zero(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition())
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        assert (await edit(store, a_definition(max_runs=1))).runs_had == 0
        assert (await only_row(store)).runs_left == 1

    @case
    @pytest.mark.parametrize("hand_over", ["jobs", "http", "external"])
    async def test_count_stays_over_edits_and_pauses(
        self, store: Store, clock: ManualClock, hand_over: HandOver
    ) -> None:
        definition = a_definition(max_runs=2, hand_over=hand_over)
        await edit(store, definition)
        clock.advance(hours=1)
        await plan(store)
        await claim(store)
        assert isinstance(await fire(store, "j1"), Fired if hand_over != "jobs" else Duplicate)
        if hand_over == "jobs":
            await end(store, await claim_one(store), Succeeded())
        change = msgspec.structs.replace
        for other in (
            change(definition, input="other"),
            change(definition, trigger=cron("30 * * * *")),
            change(definition, description="other"),
            change(definition, enabled=False),
            change(definition, enabled=False, input="other"),
            definition,
        ):
            clock.advance(seconds=1)
            assert (await edit(store, other)).runs_had == 1

    @case
    async def test_run_that_is_missed_later_stays_charged(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A planned run that is missed later stays charged; only a withdrawal refunds it."""
        policies = Policies(Misfire("skip"), overlap="allow")
        definition = a_definition(max_runs=3, policies=policies)
        await edit(store, definition)
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        clock.advance(hours=1, minutes=30)
        await store.promote_due()
        assert await states(store) == ["missed", "planned"]
        assert await had(store) == 2
        await store.remove(a_key())
        assert await store.reconcile() == ReconcileReport(checked=1, added=1)
        assert (await only_row(store)).runs_left == 1
        paused = await edit(store, msgspec.structs.replace(definition, enabled=False))
        assert paused.runs_had == 1
        assert (await edit(store, definition)).runs_had == 1
        assert (await only_row(store)).runs_left == 2

    @case
    async def test_pause_gives_back_what_has_not_begun(
        self, store: Store, clock: ManualClock
    ) -> None:
        definition = a_definition(max_runs=3)
        await edit(store, definition)
        assert (await plan(store, look_ahead_ms=9 * HOUR_MS)).finished == 1
        assert await had(store) == 3
        paused = await edit(store, msgspec.structs.replace(definition, enabled=False))
        assert (paused.runs_had, paused.state) == (0, "paused")
        clock.advance(minutes=10)
        resumed = await edit(store, definition)
        assert (resumed.runs_had, resumed.state) == (0, "active")
        await plan(store, look_ahead_ms=9 * HOUR_MS)
        assert await had(store) == 3
        assert await states(store) == ["planned"] * 3

    @case
    async def test_withdrawn_dispatch_is_given_back(self, store: Store) -> None:
        """A dispatch in line that an edit withdraws is refunded."""
        definition = an_external(2, policies=Policies(overlap="buffer_one"))
        await edit(store, definition)
        assert await fire(store, "j1", **turning("buffer_one")) == Fired(JobId("j1"))
        second = await fire(store, "j2", nominal_ms=AT_MS + 1, **turning("buffer_one"))
        assert second == Fired(JobId("j2"))
        assert (await stands(store)).state == "finished"
        edited = await edit(store, msgspec.structs.replace(definition, input="new"))
        assert (edited.runs_had, edited.state == "finished") == (1, False)
        third = await fire(store, "j3", nominal_ms=AT_MS + 2, **turning("buffer_one"))
        assert third == Fired(JobId("j3"))

    @case
    async def test_row_set_back_is_not_charged_twice(self, store: Store) -> None:
        """A row set back by an edit does not charge a running time again."""
        policies = Policies(overlap="allow", priority=1)
        definition = a_definition(FROM_TWO, policies=policies, max_runs=6)
        await edit(store, definition)
        await plan(store, look_ahead_ms=5 * MINUTE_MS)
        third = (await jobs_of(store))[2]
        await store.retry_job(third.id)
        assert await claimed(store, lease_ms=9 * HOUR_MS) == [third.id]
        assert await states(store) == ["planned", "planned", "fired", "planned"]
        await edit(store, msgspec.structs.replace(definition, input="new"))
        assert await had(store) == 1
        await plan(store, look_ahead_ms=5 * MINUTE_MS)
        assert await states(store) == ["planned", "planned", "fired", "planned"]
        assert (await had(store), (await only_row(store)).runs_left) == (4, 2)

    @case
    async def test_lost_row_comes_back_with_the_count(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A repaired row has the stored count, which includes dispatches."""
        await edit(store, a_definition(max_runs=4))
        await next_hour(store, clock)
        assert await fire(store, nominal_ms=OTHER_MS) == Fired(JobId("j1"))
        right = await only_row(store)
        await store.remove(a_key())
        assert await store.reconcile() == ReconcileReport(checked=1, added=1)
        assert (await only_row(store)).runs_left == right.runs_left == 2
        await store.upsert(replace(right, runs_left=9))
        assert await store.reconcile() == ReconcileReport(checked=1, corrected=1)
        assert (await only_row(store)).runs_left == 2

    @case
    async def test_quarantine_keeps_the_count(self, store: Store, clock: ManualClock) -> None:
        definition = a_definition(max_runs=3)
        await edit(store, definition)
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        await store.upsert(replace(await only_row(store), trigger=BAD))
        await next_hour(store, clock)
        assert ((await stands(store)).state, await had(store)) == ("quarantined", 1)
        # The time at which it was quarantined is due, so the release plans it.
        assert (await edit(store, definition)).runs_had == 2
        assert (await only_row(store)).runs_left == 1

    @case
    async def test_run_now_is_not_charged(self, store: Store) -> None:
        await edit(store, a_definition(max_runs=3))
        await store.run_now(ScheduleId("id-a"), "r1")
        assert (await had(store), (await only_row(store)).runs_left) == (0, 3)
