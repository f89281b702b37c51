"""Limits on an owner's number of schedules: which ones count, and which writes are refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from duly.model.documents import Refused
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Definition, Limits
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.index.quarantine import a_bad_row
from duly.testing.conformance.samples import (
    FLOW,
    SCOPE,
    a_definition,
    a_key,
    a_write,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import once

TWO = Limits(schedules=2)
TWO_IN_FLOW = Limits(schedules=10, schedules_per_flow=2)


def limited(
    name: str, definition: Definition | None = None, *, limits: Limits = TWO, flow: str = FLOW
) -> ScheduleWrite:
    """Return a write by an owner with `limits`, by default two schedules."""
    key = ScheduleKey(flow, SCOPE, name)
    return a_write(name, definition, key=key, id=f"{flow}-{name}", limits=limits)


async def finish(store: Store, clock: ManualClock, *names: str, limits: Limits = TWO) -> None:
    """Store schedules that have fired their only time."""
    single = a_definition(once(clock.now() + timedelta(hours=1)))
    await put(store, *(limited(name, single, limits=limits) for name in names))
    clock.advance(hours=1)
    claimed = {each.name for each in await store.claim_due()}
    assert claimed.issuperset(names)


async def answers(store: Store, *writes: ScheduleWrite) -> list[Refused | bool]:
    """Write one schedule per transaction; return each refusal, or True if it was stored."""
    found = [(await store.put_schedules([write]))[0] for write in writes]
    return [each if isinstance(each, Refused) else True for each in found]


class QuotaCases(StoreConformance):
    """Cases for Limits.schedules and Limits.schedules_per_flow."""

    @case
    async def test_finished_schedules_do_not_count(self, store: Store, clock: ManualClock) -> None:
        for round_ in range(3):
            await finish(store, clock, f"{round_}-a", f"{round_}-b")
        await put(store, limited("a"), limited("b"))
        assert await answers(store, limited("c")) == [Refused("full", 2)]

    @case
    async def test_paused_and_quarantined_schedules_count(self, store: Store) -> None:
        await put(store, limited("a", a_definition(enabled=False)))
        await put(store, a_write("bad", limits=TWO))
        await store.upsert(a_bad_row("bad"))
        await store.claim_due()
        assert await answers(store, limited("c")) == [Refused("full", 2)]

    @case
    async def test_finished_schedule_that_is_to_run_again_counts(
        self, store: Store, clock: ManualClock
    ) -> None:
        await finish(store, clock, "a")
        await put(store, limited("b"), limited("c"))
        later = a_definition(once(clock.now() + timedelta(hours=1)))
        assert await answers(store, limited("a", later)) == [Refused("full", 2)]
        found = await store.get_schedule(a_key("a"))
        assert found is not None
        assert found.state == "finished"
        # An owner at the limit may annotate schedules and delete them.
        same = once(START + timedelta(hours=1))
        assert await answers(store, limited("a", a_definition(same, note="done"))) == [True]
        await store.delete_schedule(a_key("b"))
        assert await answers(store, limited("a", later), limited("d")) == [True, Refused("full", 2)]

    @case
    async def test_full_owner_may_pause_and_not_resume_more(
        self, store: Store, clock: ManualClock
    ) -> None:
        """An owner at the limit may pause a finished schedule, but not resume it."""
        await finish(store, clock, "a")
        await put(store, limited("b"), limited("c"))
        later = once(clock.now() + timedelta(hours=1))
        off, on = a_definition(later, enabled=False), a_definition(later)
        assert await answers(store, limited("a", off), limited("a", on)) == [
            True,
            Refused("full", 2),
        ]
        # Within the limit, pausing and resuming are always possible.
        await store.delete_schedule(a_key("a"))
        paused = limited("b", a_definition(enabled=False))
        assert await answers(store, paused, limited("b")) == [True, True]

    @case
    async def test_owner_has_a_limit_in_each_flow(self, store: Store, clock: ManualClock) -> None:
        for name in "ab":
            await put(store, limited(name, limits=TWO_IN_FLOW))
        full = Refused("full", 2, limit="schedules_per_flow")
        assert await answers(store, limited("c", limits=TWO_IN_FLOW)) == [full]
        # Owners, and flows whose names have a common prefix, are counted separately.
        for flow in (f"{FLOW}-b", f"{FLOW}2", "invoices"):
            await put(store, limited("a", limits=TWO_IN_FLOW, flow=flow))
        bob = a_write(key=ScheduleKey(FLOW, "user:bob", "a"), id="bob", limits=TWO_IN_FLOW)
        await put(store, bob)
        await put(store, limited("x", flow="unlimited", limits=Limits()))
        six = limited("d", flow="other", limits=Limits(schedules=6))
        assert await answers(store, six) == [Refused("full", 6)]
        await store.delete_schedule(a_key("a"))
        await finish(store, clock, "c", limits=TWO_IN_FLOW)
        assert await answers(store, limited("d", limits=TWO_IN_FLOW)) == [True]
        batch = [limited(name, limits=TWO_IN_FLOW, flow="batch") for name in "abc"]
        assert (await store.put_schedules(batch))[2] == full

    @case
    async def test_limits_hold_when_many_are_created_at_once(self, store: Store) -> None:
        for limits, flow in ((Limits(schedules=3), "one"), (TWO_IN_FLOW, "two")):
            writes = [limited(f"{number}", limits=limits, flow=flow) for number in range(8)]
            found = await asyncio.gather(*(store.put_schedules([write]) for write in writes))
            made = [each for (each,) in found if isinstance(each, ScheduleWritten)]
            assert len(made) == (3 if flow == "one" else 2)

    @case
    async def test_limits_hold_when_finished_ones_come_back_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        names = [f"{number}" for number in range(6)]
        await finish(store, clock, *names, limits=Limits())
        later = a_definition(once(clock.now() + timedelta(hours=1)))
        writes = [limited(name, later) for name in names]
        found = await asyncio.gather(*(store.put_schedules([write]) for write in writes))
        assert sum(isinstance(each, ScheduleWritten) for (each,) in found) == 2
