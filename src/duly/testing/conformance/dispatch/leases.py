"""Dispatches without an answer whose lease has expired."""

from __future__ import annotations

from dataclasses import replace

from duly.model.schedules import ScheduleId
from duly.rules.dispatches import GAVE_UP, MAX_TRIES, SCHEDULE_DELETED, TICK_DIED
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import (
    AT_MS,
    LEASE_MS,
    a_post,
    answer,
    claim,
    claim_one,
    claimed,
)
from duly.testing.conformance.planning.samples import only_occurrence, states
from duly.testing.conformance.samples import HOUR_MS, MINUTE_MS, a_definition, a_key, a_write, put
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import once
from duly.triggers.instants import from_ms


class DispatchLeaseCases(StoreConformance):
    """Cases for expired dispatch leases."""

    @case
    async def test_lease_holds_until_its_end(self, store: Store, clock: ManualClock) -> None:
        first = await claim_one(store, clock)
        clock.advance(seconds=59.999)
        assert await claim(store, "two") == []
        clock.advance(seconds=0.001)
        (second,) = await claim(store, "two", lease_ms=5_000)
        assert second == first._replace(tries=2, lease_until_ms=AT_MS + LEASE_MS + 5_000)
        assert await states(store) == ["dispatching"]

    @case
    async def test_same_id_claims_anew_after_the_lease(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await claim_one(store, clock)
        clock.advance(minutes=1)
        (second,) = await claim(store)
        assert (second.tries, second.lease_until_ms) == (2, first.lease_until_ms + LEASE_MS)

    @case
    async def test_lost_lease_has_no_say(self, store: Store, clock: ManualClock) -> None:
        first = await claim_one(store, clock)
        clock.advance(minutes=1)
        (second,) = await claim(store, "two")
        assert await answer(store, first, "failed", reason="late") == 0
        assert await answer(store, second, "closed", claim_id="two") == 1
        assert await states(store) == ["succeeded"]

    @case
    async def test_answer_counts_until_somebody_else_has_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await claim_one(store, clock)
        clock.advance(minutes=5)
        assert await answer(store, first, "closed") == 1

    @case
    async def test_at_most_once_is_not_posted_again(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock, delivery="at_most_once")
        clock.advance(minutes=1)
        assert await claim(store, "two") == []
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("failed", TICK_DIED)
        assert occurrence.ended_at_ms == AT_MS + MINUTE_MS
        assert occurrence.fired_at_ms is None

    @case
    async def test_at_most_once_may_be_posted_once(self, store: Store, clock: ManualClock) -> None:
        """An at-most-once time that a claim had no room for is posted by a later claim."""
        await put(store, a_post(delivery="at_most_once", grace_ms=9 * HOUR_MS))
        clock.advance(hours=2)
        (first,) = await claim(store, "one", limit=1)
        (second,) = await claim(store, "two", limit=1)
        assert (first.tries, second.tries) == (1, 1)
        assert second.nominal_ms == AT_MS + HOUR_MS

    @case
    async def test_ended_ones_leave_room_for_others(self, store: Store, clock: ManualClock) -> None:
        await put(store, *(a_post(name, delivery="at_most_once") for name in "abc"))
        await put(store, a_post("z"))
        clock.advance(hours=1)
        assert len(await claim(store)) == 4
        clock.advance(minutes=1)
        assert await claimed(store, "two", limit=1) == [("z", 2)]
        assert await states(store, "c") == ["failed"]

    @case
    async def test_gives_up_in_the_end(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock)
        for tries in range(2, MAX_TRIES + 1):
            clock.advance(minutes=1)
            assert await claimed(store, f"c{tries}") == [("a", tries)]
        clock.advance(minutes=1)
        assert await claim(store, "last") == []
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("failed", GAVE_UP)

    @case
    async def test_oldest_comes_first_and_before_what_is_new(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post("new"))
        await put(store, a_post("late", trigger=once(from_ms(AT_MS + 1_000))))
        await put(store, a_post("early", trigger=once(from_ms(AT_MS - 1_000))))
        clock.advance(minutes=59, seconds=59)
        assert await claimed(store, "one", lease_ms=3_000) == [("early", 1)]
        clock.advance(seconds=2)
        assert await claimed(store, "two", lease_ms=500, limit=1) == [("new", 1)]
        assert await claimed(store, "three", lease_ms=1_000) == [("late", 1)]
        clock.advance(hours=1)
        assert await claimed(store, "four") == [("early", 2), ("new", 2), ("late", 2), ("new", 1)]

    @case
    async def test_those_that_became_free_first_come_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post("early", trigger=once(from_ms(AT_MS - 1_000))))
        await put(store, a_post("late", trigger=once(from_ms(AT_MS))))
        await put(store, a_post("last", trigger=once(from_ms(AT_MS))))
        clock.advance(hours=1)
        assert await claimed(store, "one", limit=1) == [("early", 1)]
        assert await claimed(store, "two", lease_ms=1_000, limit=1) == [("late", 1)]
        assert await claimed(store, "three", lease_ms=2_000) == [("last", 1)]
        clock.advance(minutes=1)
        # A limited claim takes the leases that expired first.
        assert await claimed(store, "four", limit=2) == [("last", 2), ("late", 2)]
        assert await claimed(store, "five") == [("early", 2)]

    @case
    async def test_only_named_flows_are_posted_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        other = replace(a_post(), key=a_key(flow="other"), id=ScheduleId("id-other"))
        await put(store, a_post(), other)
        clock.advance(hours=1)
        assert len(await claim(store)) == 2
        clock.advance(minutes=1)
        assert await claimed(store, "two", flows=("reminders",)) == [("a", 2)]

    @case
    async def test_deleted_schedule_is_not_posted_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_one(store, clock)
        await store.delete_schedule(a_key())
        assert await states(store) == ["dispatching"]
        clock.advance(minutes=1)
        assert await claim(store, "two") == []
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("withdrawn", SCHEDULE_DELETED)

    @case
    async def test_deleted_name_that_is_taken_again_is_another(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_one(store, clock)
        await store.delete_schedule(a_key())
        await put(store, replace(a_post(), id=ScheduleId("id-again")))
        clock.advance(minutes=1)
        assert await claim(store, "two") == []
        assert await states(store) == ["withdrawn"]

    @case
    async def test_finished_schedule_is_posted_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post(trigger=once(from_ms(AT_MS))))
        clock.advance(hours=1)
        assert await claimed(store) == [("a", 1)]
        clock.advance(minutes=1)
        assert await claimed(store, "two") == [("a", 2)]

    @case
    async def test_edit_does_not_take_back_what_has_begun(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_one(store, clock)
        changed = a_definition(hand_over="http", input={"changed": True})
        await put(store, a_write(definition=changed))
        assert await states(store) == ["dispatching"]
        clock.advance(minutes=1)
        assert await claimed(store, "two") == [("a", 2)]

    @case
    async def test_pause_does_not_take_back_what_has_begun(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_one(store, clock)
        await put(store, a_write(definition=a_definition(hand_over="http", enabled=False)))
        clock.advance(minutes=1)
        assert await claimed(store, "two") == [("a", 2)]
