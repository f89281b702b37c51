"""Edits of due schedules that no tick has claimed: the ledger covers each time exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from duly.model.schedules import Definition, HandOver, Misfire, Policies, ScheduleId
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import AT_MS, a_post, claim, claimed
from duly.testing.conformance.planning.samples import plan
from duly.testing.conformance.samples import (
    HOUR_MS,
    HOURLY,
    MINUTE_MS,
    START_MS,
    a_definition,
    a_key,
    a_write,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import cron

HALF_PAST = cron("30 * * * *")
Row = tuple[int, int, str, str | None]


async def rows(store: Store) -> list[Row]:
    """Return first and last minute, state and reason of each ledger row."""
    found = await store.list_occurrences(ScheduleId("id-a"))
    return [
        (
            (row.nominal_ms - START_MS) // MINUTE_MS,
            (row.until_ms - START_MS) // MINUTE_MS,
            row.state.value,
            row.reason,
        )
        for row in reversed(found)
    ]


async def come(store: Store, clock: ManualClock, definition: Definition) -> None:
    """Store a schedule whose first time was due ten seconds ago and is unclaimed."""
    await put(store, a_write(definition=definition))
    clock.advance(hours=1, seconds=10)


async def posted(store: Store, claim_id: str = "one") -> list[int]:
    """Return the times that a claim posts for the first time."""
    return [each.nominal_ms for each in await claim(store, claim_id) if each.tries == 1]


class DispatchEditCases(StoreConformance):
    """Cases for edits between a due time and its tick."""

    @case
    @pytest.mark.parametrize("hand_over", ["jobs", "http"])
    @pytest.mark.parametrize("change", ["changed", "paused", "deleted"])
    async def test_time_that_has_come_is_in_the_ledger(
        self, store: Store, clock: ManualClock, change: str, hand_over: HandOver
    ) -> None:
        hourly = a_definition(hand_over=hand_over)
        await come(store, clock, hourly)
        if change == "changed":
            await put(store, a_write(definition=a_definition(HALF_PAST, hand_over=hand_over)))
        elif change == "paused":
            paused = a_definition(hand_over=hand_over, enabled=False)
            await put(store, a_write(definition=paused))
            clock.advance(minutes=5)
            await put(store, a_write(definition=hourly))
        else:
            await store.delete_schedule(a_key())
        assert await claim(store) == []
        await plan(store)
        assert await rows(store) == [(60, 60, "withdrawn", f"withdrawn: schedule {change}")]

    @case
    async def test_time_that_the_new_rule_has_is_posted(
        self, store: Store, clock: ManualClock
    ) -> None:
        await come(store, clock, a_post().definition)
        await put(store, a_post(trigger=cron("0,30 * * * *")))
        assert await posted(store) == [AT_MS]
        clock.advance(minutes=30)
        assert await posted(store, "two") == [AT_MS + HOUR_MS // 2]

    @case
    async def test_new_rule_adds_no_time_before_the_edit(
        self, store: Store, clock: ManualClock
    ) -> None:
        policies: dict[str, Any] = {"misfire": Misfire("catch_up"), "grace_ms": 10_000}
        await come(store, clock, a_post(**policies).definition)
        clock.advance(minutes=10)
        await put(store, a_post(trigger=cron("* * * * *"), **policies))
        assert await posted(store) == [AT_MS]

    @case
    async def test_time_changes_hands(self, store: Store, clock: ManualClock) -> None:
        await come(store, clock, a_post().definition)
        await put(store, a_write())
        assert await claim(store) == []
        assert [row[:3] for row in await rows(store)] == [(60, 60, "planned")]

    @case
    async def test_paused_dispatch_that_nobody_posted_is_taken_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A pause withdraws a dispatch that a claim planned but had no room to return."""
        twice = Policies(misfire=Misfire("catch_up", limit=2), grace_ms=0)
        definition = a_definition(HOURLY, hand_over="http", policies=twice)
        await put(store, a_write(definition=definition))
        clock.advance(hours=2, seconds=10)
        assert len(await claim(store, limit=1)) == 1
        await put(store, a_write(definition=structs.replace(definition, enabled=False)))
        clock.advance(minutes=5)
        assert await claimed(store, "two") == [("a", 2)]
        assert [row[:3] for row in await rows(store)] == [
            (60, 60, "dispatching"),
            (120, 120, "withdrawn"),
        ]

    @case
    async def test_run_that_was_not_had_is_given_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        await come(store, clock, a_post(max_runs=1).definition)
        await put(store, a_post(trigger=HALF_PAST, max_runs=1))
        clock.advance(minutes=30)
        assert await posted(store) == [AT_MS + HOUR_MS // 2]
        clock.advance(hours=1)
        assert await posted(store, "two") == []
