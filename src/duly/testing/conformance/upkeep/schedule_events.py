"""Retention of schedule events: of existing schedules, the newest of each kind stays."""

from __future__ import annotations

from duly.model.schedules import ScheduleId
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import DAILY, HOURLY, a_definition, a_key, a_write, put
from duly.testing.conformance.suite import StoreConformance, case
from duly.testing.conformance.upkeep.ledger import prune

DAYS = 30


async def kinds(store: Store, name: str = "a") -> list[str]:
    """Return the kinds of a schedule's events, oldest first."""
    return [fact.kind for fact in await store.schedule_events(ScheduleId(f"id-{name}"))]


class EventRetentionCases(StoreConformance):
    """Cases for schedule events in prune_ledger()."""

    @case
    async def test_facts_about_the_gone_go(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        await store.delete_schedule(a_key())
        clock.advance(days=DAYS)
        assert (await prune(store)).events == 0
        clock.advance(milliseconds=1)
        assert (await prune(store)).events == 2
        assert await kinds(store) == []

    @case
    async def test_newest_of_each_kind_stays(self, store: Store, clock: ManualClock) -> None:
        """The newest event of each kind stays; resuming and `why` need it."""
        for trigger in (HOURLY, DAILY, HOURLY):
            for enabled in (True, False):
                await put(store, a_write(definition=a_definition(trigger, enabled=enabled)))
                clock.advance(hours=1)
        before = await store.schedule_events(ScheduleId("id-a"))
        said = ["created", "paused", "resumed", "paused", "resumed", "paused"]
        assert [fact.kind for fact in before] == said
        clock.advance(days=DAYS + 1)
        assert (await prune(store)).events == 3
        left = await store.schedule_events(ScheduleId("id-a"))
        assert left == [before[0], *before[4:]]
        assert (await prune(store)).events == 0

    @case
    async def test_newest_change_of_the_rule_stays(self, store: Store, clock: ManualClock) -> None:
        """The newest change of the trigger stays, since a lost index row is restored from it."""
        await put(store, a_write())
        for trigger, words in ((DAILY, "a"), (HOURLY, "b"), (HOURLY, "c"), (HOURLY, "d")):
            clock.advance(hours=1)
            await put(store, a_write(definition=a_definition(trigger, description=words)))
        before = await store.schedule_events(ScheduleId("id-a"))
        clock.advance(days=DAYS + 1)
        assert (await prune(store)).events == 2
        left = await store.schedule_events(ScheduleId("id-a"))
        assert left == [before[0], before[2], before[4]]

    @case
    async def test_young_facts_stay(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        for trigger in (DAILY, HOURLY, DAILY):
            clock.advance(days=DAYS - 10)
            await put(store, a_write(definition=a_definition(trigger)))
        assert await kinds(store) == ["created", "changed", "changed", "changed"]
        assert (await prune(store)).events == 1
        assert await kinds(store) == ["created", "changed", "changed"]

    @case
    async def test_facts_go_in_bounded_steps(self, store: Store, clock: ManualClock) -> None:
        for name in ("a", "b", "c", "d", "e"):
            await put(store, a_write(name))
            if name != "c":
                await store.delete_schedule(a_key(name))
        clock.advance(days=DAYS + 1)
        assert (await prune(store, 2)).events == 8
        assert await kinds(store, "c") == ["created"]
