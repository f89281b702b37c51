"""Edits of the timing: before the edit, the new trigger has only times that were withdrawn."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest
from msgspec.structs import replace

from duly.model.dispatches import DispatchClaim
from duly.model.schedules import Definition, Misfire, Policies
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.samples import (
    jobs_of,
    ledger,
    next_hour,
    only_occurrence,
    plan,
    states,
)
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
OFTEN = cron("*/10 * * * *")
SPREAD = cron("0 * * * *", spread=timedelta(minutes=40))
"""With the key of the samples, its run time is more than 3 min after the hour."""
POLICIES = [
    pytest.param(Misfire("skip"), 1, ["missed", "missed"], id="skip"),
    pytest.param(Misfire("run_once"), 1, ["missed", "planned"], id="run_once"),
    pytest.param(Misfire("run_once"), 40, ["missed", "planned"], id="one_is_on_time"),
    pytest.param(Misfire("catch_up"), 1, ["planned", "planned"], id="catch_up"),
    pytest.param(Misfire("catch_up", limit=1), 1, ["missed", "planned"], id="limit"),
    pytest.param(Misfire("catch_up", max_age_ms=HOUR_MS), 1, ["missed", "planned"], id="max_age"),
    pytest.param(Misfire("skip"), 120, ["planned", "planned"], id="on_time"),
]
"""Policy, grace in minutes, and states of 13:00 and 14:00 at 14:35."""


async def edit(store: Store, definition: Definition) -> None:
    """Write a definition of the schedule."""
    await put(store, a_write(definition=definition))


async def state_of(store: Store) -> str:
    """Return the state of the schedule."""
    schedule = await store.get_schedule(a_key())
    assert schedule is not None
    return schedule.state


class RetimedCases(StoreConformance):
    """Cases for edits of the timing while planned runs have not begun."""

    @case
    async def test_new_rule_has_no_times_before_the_edit(
        self, store: Store, clock: ManualClock
    ) -> None:
        """13:00 is withdrawn and planned again; 13:10 to 13:30 came before the edit and are not."""
        await edit(store, a_definition(input="old"))
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(hours=1, minutes=35)
        await edit(store, a_definition(OFTEN, input="new"))
        again = await only_occurrence(store)
        assert (again.nominal_ms, again.state.value, again.reason) == (AT_MS, "planned", "run_once")
        assert (await only_row(store)).nominal_ms == AT_MS + 40 * MINUTE_MS
        assert (await claim_one(store)).input == '"new"'

    @case
    @pytest.mark.parametrize(("misfire", "grace_minutes", "expected"), POLICIES)
    async def test_policy_decides_over_the_withdrawn_alone(
        self,
        store: Store,
        clock: ManualClock,
        misfire: Misfire,
        grace_minutes: int,
        expected: list[str],
    ) -> None:
        policies = Policies(misfire, grace_minutes * MINUTE_MS, overlap="allow")
        await edit(store, a_definition(policies=policies))
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        clock.advance(hours=2, minutes=35)
        await edit(store, a_definition(OFTEN, policies=policies))
        found = [(each.nominal_ms, each.count, each.state.value) for each in await ledger(store)]
        times = (AT_MS, AT_MS + HOUR_MS)
        assert found == [(ms, 1, state) for ms, state in zip(times, expected, strict=True)]
        late = [job.run_at_ms for job in await jobs_of(store) if job.state.value != "cancelled"]
        if misfire.kind == "catch_up":
            now_ms = AT_MS + HOUR_MS + 35 * MINUTE_MS
            assert late == [now_ms + turn * 1_000 for turn in range(len(late))]

    @case
    async def test_finished_schedule_gets_its_last_run_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        """An edit replans the last run of a finished schedule, not times after its end."""
        await edit(store, a_definition(max_runs=1, input="old"))
        await next_hour(store, clock)
        assert await state_of(store) == "finished"
        clock.advance(hours=2, minutes=30)
        await edit(store, a_definition(max_runs=1, input="new"))
        again = await only_occurrence(store)
        assert (again.nominal_ms, again.state.value) == (AT_MS, "planned")
        assert (await state_of(store), await store.list_rows()) == ("finished", [])
        assert (await claim_one(store)).input == '"new"'

    @case
    async def test_more_runs_begin_after_the_edit(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition(max_runs=1))
        await next_hour(store, clock)
        clock.advance(hours=2, minutes=30)
        await edit(store, a_definition(max_runs=3))
        assert (await only_occurrence(store)).state.value == "planned"
        row = await only_row(store)
        assert (row.nominal_ms, row.runs_left) == (AT_MS + 3 * HOUR_MS, 2)
        await end(store, await claim_one(store), Succeeded())
        clock.advance(hours=2)
        await plan(store)
        assert (await states(store), await state_of(store)) == (
            ["succeeded", "missed", "planned"],
            "active",
        )

    @case
    async def test_run_that_is_missed_is_not_charged(
        self, store: Store, clock: ManualClock
    ) -> None:
        skipping = Policies(Misfire("skip"))
        await edit(store, a_definition(max_runs=1, policies=skipping))
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(hours=1, minutes=35)
        await edit(store, a_definition(OFTEN, max_runs=1, policies=skipping))
        assert (await only_occurrence(store)).state.value == "missed"
        row = await only_row(store)
        assert (row.nominal_ms, row.runs_left) == (AT_MS + 40 * MINUTE_MS, 1)

    @case
    async def test_withdrawn_times_before_and_after_the_edit(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Withdrawn times before the edit are planned again; later ones when they are due."""
        await edit(store, a_definition(policies=Policies(overlap="allow")))
        clock.advance(hours=1)
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(minutes=35)
        policies = Policies(overlap="allow", grace_ms=HOUR_MS)
        await edit(store, a_definition(OFTEN, policies=policies))
        assert await states(store) == ["planned", "withdrawn"]
        assert (await only_row(store)).nominal_ms == AT_MS + 40 * MINUTE_MS
        clock.advance(minutes=25)
        await plan(store)
        minutes = [(each.nominal_ms - AT_MS) // MINUTE_MS for each in await ledger(store)]
        assert (minutes, set(await states(store))) == ([0, 40, 50, 60], {"planned"})

    @case
    @pytest.mark.parametrize("misfire", ["run_once", "skip"])
    async def test_time_that_is_spread_is_not_lost(
        self, store: Store, clock: ManualClock, misfire: Literal["run_once", "skip"]
    ) -> None:
        """A time that has come but not its run time is planned if the new trigger also has it."""
        policies = Policies(Misfire(misfire))
        await edit(store, a_definition(SPREAD, policies=policies))
        clock.advance(minutes=2)
        assert await ledger(store) == []
        await edit(store, a_definition(policies=policies))
        again = await only_occurrence(store)
        assert (again.nominal_ms, again.state.value, again.reason) == (START_MS, "planned", None)
        assert (await only_row(store)).nominal_ms == AT_MS
        await end(store, await claim_one(store), Succeeded())
        assert await states(store) == ["succeeded"]

    @case
    @pytest.mark.parametrize("hand_over", ["jobs", "http"])
    async def test_time_that_is_spread_is_taken_back(
        self, store: Store, clock: ManualClock, hand_over: Literal["jobs", "http"]
    ) -> None:
        """A time that has come but not its run time is withdrawn if the new trigger lacks it."""
        await edit(store, a_definition(SPREAD, hand_over=hand_over))
        clock.advance(minutes=2)
        await edit(store, a_definition(cron("30 * * * *"), hand_over=hand_over))
        taken = await only_occurrence(store)
        assert (taken.nominal_ms, taken.state.value) == (START_MS, "withdrawn")
        assert (taken.reason, taken.job_id) == ("withdrawn: schedule changed", None)
        assert await jobs_of(store) == []

    @case
    async def test_time_that_is_spread_stays_where_it_is(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A time stays in the index while its run time is still to come after the edit."""
        await edit(store, a_definition(SPREAD, max_runs=5))
        before = await only_row(store)
        clock.advance(minutes=2)
        await edit(store, a_definition(SPREAD, max_runs=4))
        after = await only_row(store)
        assert (after.nominal_ms, after.run_at_ms) == (before.nominal_ms, before.run_at_ms)
        assert (after.runs_left, await ledger(store)) == (4, [])

    @case
    async def test_time_missed_in_a_pause_does_not_run_when_it_is_spread(
        self, store: Store, clock: ManualClock
    ) -> None:
        await self._spread_what_was_missed(store, clock, "jobs")
        await plan(store)
        assert await states(store) == ["missed"]
        assert (await only_row(store)).nominal_ms == START_MS + 3 * HOUR_MS

    @case
    async def test_time_missed_in_a_pause_is_not_posted_when_it_is_spread(
        self, store: Store, clock: ManualClock
    ) -> None:
        await self._spread_what_was_missed(store, clock, "http")
        assert await store.claim_dispatches(DispatchClaim("tick")) == []
        assert await states(store) == ["missed"]
        assert (await only_row(store)).nominal_ms == START_MS + 3 * HOUR_MS

    async def _spread_what_was_missed(
        self, store: Store, clock: ManualClock, hand_over: Literal["jobs", "http"]
    ) -> None:
        """Add a spread after 13:00 and 14:00 were missed together, so that 14:00 comes again."""
        hourly = a_definition(hand_over=hand_over)
        await edit(store, replace(hourly, enabled=False))
        clock.advance(hours=2)
        await edit(store, hourly)
        assert (await only_occurrence(store)).count == 2
        await edit(store, a_definition(SPREAD, hand_over=hand_over))
        assert (await only_row(store)).nominal_ms == START_MS + 2 * HOUR_MS
        clock.advance(minutes=50)

    @case
    async def test_fewer_runs_end_what_was_to_come(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition(max_runs=3))
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(minutes=10)
        await edit(store, a_definition(max_runs=1))
        assert await states(store) == ["succeeded", "withdrawn"]
        assert (await state_of(store), await store.list_rows()) == ("finished", [])
