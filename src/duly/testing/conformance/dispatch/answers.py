"""Answers to posts: closed, again, failed, and schedules unknown to the endpoint."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.dispatches import (
    MAX_DISPATCHES,
    MAX_LEASE_MS,
    MAX_REASON,
    DispatchAnswer,
    DispatchEnd,
)
from duly.model.schedules import ScheduleId
from duly.rules.dispatches import CLOSED, GAVE_UP, MAX_TRIES, NOT_FOUND_LIMIT
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import (
    AT_MS,
    a_post,
    answer,
    claim,
    claim_one,
    claimed,
    fire,
)
from duly.testing.conformance.planning.samples import ledger, only_occurrence, states
from duly.testing.conformance.samples import (
    HOUR_MS,
    HOURLY,
    a_definition,
    a_key,
    a_row,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import once
from duly.triggers.instants import from_ms

NO_SUCH = "404 schedule_not_found"
LIMIT: list[DispatchEnd] = ["not_found"] * NOT_FOUND_LIMIT


async def hear(store: Store, clock: ManualClock, *ends: DispatchEnd) -> None:
    """Claim once an hour, and end each dispatch with the next of `ends`."""
    for end in ends:
        clock.advance(hours=1)
        claim_id = f"at {clock.now()}"
        (dispatching,) = await claim(store, claim_id)
        assert await answer(store, dispatching, end, claim_id=claim_id, reason=NO_SUCH) == 1


class DispatchEndCases(StoreConformance):
    """Cases for answers to posts."""

    @case
    async def test_closed_has_succeeded(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        clock.advance(seconds=2)
        assert await answer(store, dispatching, "closed") == 1
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("succeeded", CLOSED)
        assert (occurrence.fired_at_ms, occurrence.ended_at_ms) == (AT_MS + 2_000, AT_MS + 2_000)
        clock.advance(minutes=5)
        assert await claim(store, "two") == []

    @case
    async def test_again_waits_for_its_delay(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        assert await answer(store, dispatching, "again", reason="503", delay_ms=90_000) == 1
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("dispatching", "503")
        assert occurrence.ended_at_ms is None
        clock.advance(seconds=89.999)
        assert await claim(store, "two") == []
        clock.advance(seconds=0.001)
        (second,) = await claim(store, "two")
        assert (second.nominal_ms, second.tries) == (AT_MS, 2)

    @case
    async def test_again_at_once_is_anybodys(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        assert await answer(store, dispatching, "again") == 1
        assert await answer(store, dispatching, "closed") == 0
        assert await claimed(store, "two") == [("a", 2)]

    @case
    async def test_again_is_the_end_at_most_once(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock, delivery="at_most_once")
        assert await answer(store, dispatching, "again", reason="timed out") == 1
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("failed", "timed out")
        assert occurrence.ended_at_ms == AT_MS
        assert await claim(store, "two") == []

    @case
    async def test_again_and_again_ends_too(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post())
        clock.advance(hours=1)
        for tries in range(1, MAX_TRIES + 1):
            (dispatching,) = await claim(store)
            assert dispatching.tries == tries
            assert await answer(store, dispatching, "again", reason="503") == 1
        assert await claim(store) == []
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("failed", f"{GAVE_UP}: 503")

    @case
    async def test_failed_is_for_good(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        assert await answer(store, dispatching, "failed", reason="400 invalid_input") == 1
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("failed", "400 invalid_input")
        assert (occurrence.fired_at_ms, occurrence.ended_at_ms) == (None, AT_MS)
        clock.advance(minutes=5)
        assert await claim(store, "two") == []

    @case
    async def test_reason_is_kept_short(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        assert await answer(store, dispatching, "failed", reason="x" * 2 * MAX_REASON) == 1
        assert (await only_occurrence(store)).reason == "x" * MAX_REASON

    @case
    async def test_claim_speaks_for_its_own_alone(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        assert await answer(store, dispatching, "closed", claim_id="two") == 0
        later = dispatching._replace(nominal_ms=AT_MS + HOUR_MS)
        assert await answer(store, later, "closed") == 0
        assert await states(store) == ["dispatching"]

    @case
    async def test_answers_come_together(self, store: Store, clock: ManualClock) -> None:
        await put(store, *(a_post(name) for name in "abcd"))
        clock.advance(hours=1)
        ends: list[DispatchEnd] = ["closed", "again", "failed"]
        given = await claim(store)
        answers = [
            DispatchAnswer(each.schedule_id, each.nominal_ms, end)
            for each, end in zip(given, ends, strict=False)
        ]
        unknown = DispatchAnswer(ScheduleId("id-z"), AT_MS, "failed")
        assert await store.end_dispatches("one", [unknown, *answers]) == 3
        found = [(await states(store, name))[0] for name in "abcd"]
        assert found == ["succeeded", "dispatching", "failed", "dispatching"]
        assert await store.end_dispatches("one", []) == 0

    @case
    async def test_first_answer_counts(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        key = (dispatching.schedule_id, dispatching.nominal_ms)
        both = [DispatchAnswer(*key, "again", "503", 1_000), DispatchAnswer(*key, "closed")]
        assert await store.end_dispatches("one", both) == 1
        assert await states(store) == ["dispatching"]

    @case
    async def test_what_was_fired_stays(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        await fire(store)
        before = await ledger(store)
        assert await answer(store, dispatching, "closed") == 0
        assert await answer(store, dispatching, "failed") == 0
        assert await ledger(store) == before

    @case
    async def test_impossible_answers_are_refused(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        for delay_ms in (-1, MAX_LEASE_MS + 1):
            with pytest.raises(InvalidInput):
                await answer(store, dispatching, "again", delay_ms=delay_ms)
        many = [DispatchAnswer(ScheduleId("id-a"), AT_MS, "closed")] * (MAX_DISPATCHES + 1)
        with pytest.raises(InvalidInput):
            await store.end_dispatches("one", many)
        assert await states(store) == ["dispatching"]


class NotFoundCases(StoreConformance):
    """Cases for schedules unknown to the endpoint."""

    @case
    async def test_unknown_schedule_is_set_apart_in_the_end(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post(), a_post("other", trigger=once(from_ms(AT_MS + 90 * HOUR_MS))))
        await hear(store, clock, *LIMIT[1:])
        assert await store.list_quarantined() == []
        await hear(store, clock, "not_found")
        (apart,) = await store.list_quarantined()
        assert (apart.key, apart.nominal_ms) == (a_key(), AT_MS + 3 * HOUR_MS)
        assert NO_SUCH in apart.error
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert (schedule.state, schedule.error) == ("quarantined", apart.error)
        kinds = [event.kind for event in await store.schedule_events(schedule.id)]
        assert kinds == ["created", "quarantined"]
        assert await states(store) == ["failed"] * NOT_FOUND_LIMIT
        assert [each.reason for each in await ledger(store)] == [NO_SUCH] * NOT_FOUND_LIMIT
        clock.advance(hours=5)
        assert await claim(store, "later") == []

    @case
    async def test_closed_begins_the_count_anew(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post())
        await hear(store, clock, "not_found", "not_found", "closed", "not_found", "not_found")
        assert await store.list_quarantined() == []
        await hear(store, clock, "not_found")
        assert len(await store.list_quarantined()) == 1

    @case
    async def test_what_was_fired_begins_the_count_anew(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A fire resets the not-found count, even if it comes before the tick's answer."""
        await put(store, a_post())
        await hear(store, clock, "not_found", "not_found")
        clock.advance(hours=1)
        (dispatching,) = await claim(store)
        await fire(store, nominal_ms=dispatching.nominal_ms)
        assert await answer(store, dispatching, "closed") == 0
        await hear(store, clock, "not_found")
        assert await store.list_quarantined() == []

    @case
    async def test_other_answers_leave_the_count(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post())
        await hear(store, clock, "not_found", "failed", "not_found", "failed")
        assert await store.list_quarantined() == []
        await hear(store, clock, "not_found")
        assert len(await store.list_quarantined()) == 1

    @case
    async def test_edit_begins_the_count_anew(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post())
        await hear(store, clock, "not_found", "not_found")
        changed = a_definition(hand_over="http", input={"changed": True})
        await put(store, a_write(definition=changed))
        await hear(store, clock, "not_found", "not_found")
        assert await store.list_quarantined() == []

    @case
    async def test_put_again_begins_anew(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post())
        await hear(store, clock, *LIMIT)
        await put(store, a_post())
        assert await store.list_quarantined() == []
        await hear(store, clock, "not_found", "not_found")
        assert await store.list_quarantined() == []
        await hear(store, clock, "not_found")
        assert len(await store.list_quarantined()) == 1

    @case
    async def test_row_of_another_index_is_set_apart_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.upsert(a_row(trigger=HOURLY, hand_over="http"))
        await hear(store, clock, *LIMIT)
        assert [each.key for each in await store.list_quarantined()] == [a_key()]

    @case
    async def test_schedule_without_a_row_has_only_failed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post(trigger=once(from_ms(AT_MS))))
        await hear(store, clock, "not_found")
        assert await states(store) == ["failed"]
        assert (await store.list_rows(), await store.list_quarantined()) == ([], [])

    @case
    async def test_void_answers_are_not_counted(self, store: Store, clock: ManualClock) -> None:
        dispatching = await claim_one(store, clock)
        for _ in range(NOT_FOUND_LIMIT):
            assert await answer(store, dispatching, "not_found", claim_id="other") == 0
        assert (await only_row(store)).name == "a"
        assert await store.list_quarantined() == []
