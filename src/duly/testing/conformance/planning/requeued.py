"""Edits while runs are queued or in line: none of them becomes late or is lost."""

from __future__ import annotations

import pytest

from duly.model.schedules import Definition, Misfire, Overlap, Policies
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.samples import (
    ledger,
    line,
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
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import cron

MISFIRES = [Misfire(), Misfire("skip"), Misfire("catch_up")]
OVERLAPS: list[tuple[Overlap, list[str], list[str]]] = [
    ("skip", ["planned", "skipped", "skipped"], ["succeeded", "skipped", "skipped"]),
    ("buffer_one", ["planned", "planned", "skipped"], ["succeeded", "succeeded", "skipped"]),
    ("cancel_running", ["skipped", "skipped", "planned"], ["skipped", "skipped", "succeeded"]),
    ("allow", ["planned"] * 3, ["succeeded"] * 3),
]
"""Policy, and states of 13:00, 14:00 and 15:00 before and after a worker runs them."""


async def edit(store: Store, definition: Definition) -> None:
    """Write a definition of the schedule."""
    await put(store, a_write(definition=definition))


async def work_off(store: Store, runs: int) -> list[str]:
    """Claim and finish `runs` jobs one after another; return their inputs."""
    inputs = []
    for _ in range(runs):
        job = await claim_one(store, limit=1)
        inputs.append(job.input)
        await end(store, job, Succeeded())
    return inputs


class RequeuedCases(StoreConformance):
    """Cases for put_schedules() while jobs of the schedule wait for a worker."""

    @case
    @pytest.mark.parametrize("misfire", MISFIRES, ids=[each.kind for each in MISFIRES])
    @pytest.mark.parametrize(
        ("overlap", "waiting", "ended"), OVERLAPS, ids=[each[0] for each in OVERLAPS]
    )
    async def test_edit_loses_nothing_that_is_queued(
        self,
        store: Store,
        clock: ManualClock,
        misfire: Misfire,
        overlap: Overlap,
        waiting: list[str],
        ended: list[str],
    ) -> None:
        """An edit keeps queued runs, for every misfire and overlap policy."""
        policies = Policies(misfire, overlap=overlap)
        await edit(store, a_definition(input="old", policies=policies, max_runs=9))
        for _ in range(3):
            await next_hour(store, clock)
        clock.advance(minutes=30)
        assert await states(store) == waiting
        before = await only_row(store)
        await edit(store, a_definition(input="new", policies=policies, max_runs=9))
        assert await states(store) == waiting
        assert {each.reason for each in await ledger(store) if each.state == "planned"} == {None}
        after = await only_row(store)
        assert (after.nominal_ms, after.runs_left) == (before.nominal_ms, before.runs_left)
        runs = ended.count("succeeded")
        assert await work_off(store, runs) == ['"new"'] * runs
        assert await states(store) == ended

    @case
    async def test_new_trigger_loses_nothing_that_is_queued(
        self, store: Store, clock: ManualClock
    ) -> None:
        skipping = Policies(Misfire("skip"))
        await edit(store, a_definition(policies=skipping))
        await next_hour(store, clock)
        clock.advance(minutes=35)
        await edit(store, a_definition(cron("*/10 * * * *"), policies=skipping))
        again = await only_occurrence(store)
        assert (again.state.value, again.reason) == ("planned", None)
        assert sorted(await line(store)) == [("cancelled", False), ("queued", False)]
        assert (await only_row(store)).nominal_ms == START_MS + HOUR_MS + 40 * MINUTE_MS

    @case
    async def test_caught_up_stay_in_line(self, store: Store, clock: ManualClock) -> None:
        """After an edit, runs of catch_up stay in line and keep their reason, despite skip."""
        policies = Policies(Misfire("catch_up", limit=3))
        await edit(store, a_definition(policies=policies))
        clock.advance(hours=3, minutes=30)
        await plan(store)
        clock.advance(minutes=5)
        await store.promote_due()
        assert await line(store) == [("queued", False), ("scheduled", True), ("scheduled", True)]
        await edit(store, a_definition(input="new", policies=policies))
        found = [(each.state.value, each.reason) for each in await ledger(store)]
        assert found == [("planned", "catch_up")] * 3
        assert await work_off(store, 3) == ['"new"'] * 3

    @case
    async def test_late_one_gives_way_to_a_later_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A planned run that was never queued is missed in favour of a later due time."""
        await edit(store, a_definition(input="old"))
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(hours=3, minutes=30)
        await edit(store, a_definition(input="new"))
        found = [(each.count, each.state.value) for each in await ledger(store)]
        assert found == [(1, "missed"), (1, "missed"), (1, "planned")]
        assert await work_off(store, 1) == ['"new"']

    @case
    async def test_dispatch_that_waits_for_a_tick_is_not_late(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A dispatch planned by an edit and not yet posted is kept by the next edit."""
        skipping = Policies(Misfire("skip"))
        await edit(store, a_definition(policies=skipping, hand_over="http"))
        clock.advance(hours=1)
        half = cron("*/30 * * * *")
        await edit(store, a_definition(half, policies=skipping, hand_over="http"))
        assert await states(store) == ["dispatching"]
        clock.advance(minutes=20)
        await edit(store, a_definition(half, input=2, policies=skipping, hand_over="http"))
        assert await states(store) == ["dispatching"]
