"""Claims of a tick: due rows with hand-over http become dispatches and advance."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from duly.errors import InvalidInput
from duly.model.dispatches import MAX_DISPATCHES, MAX_LEASE_MS, Dispatching
from duly.model.schedules import Misfire, ScheduleId
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
    fire,
)
from duly.testing.conformance.index.quarantine import BAD
from duly.testing.conformance.planning.samples import jobs_of, ledger, only_occurrence, states
from duly.testing.conformance.samples import (
    FLOW,
    HOUR_MS,
    MINUTE_MS,
    SCOPE,
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

ALL_KEPT = Misfire(kind="catch_up", limit=5, per_minute=60)


class DispatchClaimCases(StoreConformance):
    """Cases for claims of due rows."""

    @case
    async def test_due_row_becomes_a_dispatch_and_goes_on(
        self, store: Store, clock: ManualClock
    ) -> None:
        dispatching = await claim_one(store, clock)
        assert dispatching == Dispatching(
            ScheduleId("id-a"), FLOW, SCOPE, "a", AT_MS, AT_MS, 1, "at_least_once", AT_MS + LEASE_MS
        )
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.nominal_ms) == ("dispatching", AT_MS)
        assert (occurrence.run_at_ms, occurrence.reason, occurrence.job_id) == (AT_MS, None, None)
        assert (await only_row(store)).nominal_ms == AT_MS + HOUR_MS
        assert await jobs_of(store) == []

    @case
    async def test_nothing_is_taken_ahead_of_its_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post())
        clock.advance(minutes=59, seconds=59.999)
        assert await claim(store) == []
        assert await ledger(store) == []
        clock.advance(seconds=0.001)
        assert await claimed(store) == [("a", 1)]

    @case
    async def test_rows_of_other_hand_overs_are_not_posted(
        self, store: Store, clock: ManualClock
    ) -> None:
        external = a_definition(hand_over="external")
        await put(store, a_write("jobs"), a_write("external", external), a_post("http"))
        clock.advance(hours=1)
        assert await claimed(store) == [("http", 1)]
        assert [row.name for row in await store.list_rows()] == ["jobs", "http"]

    @case
    async def test_newer_triggers_wait_for_newer_ticks(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post())
        await store.upsert(replace(await only_row(store), trigger_version=99))
        clock.advance(hours=1)
        assert await claim(store) == []
        assert (await only_row(store)).nominal_ms == AT_MS

    @case
    async def test_only_named_flows_are_posted(self, store: Store, clock: ManualClock) -> None:
        other = replace(a_post(), key=a_key(flow="other"), id=ScheduleId("id-other"))
        await put(store, a_post(), other)
        clock.advance(hours=1)
        assert [each.flow for each in await claim(store, flows=("other",))] == ["other"]
        assert await claim(store, "two", flows=("third",)) == []
        assert await claimed(store, "three") == [("a", 1)]

    @case
    async def test_no_more_than_asked(self, store: Store, clock: ManualClock) -> None:
        await put(store, *(a_post(name) for name in "abcde"))
        clock.advance(hours=1)
        assert await claimed(store, "one", limit=2) == [("a", 1), ("b", 1)]
        assert len(await store.list_rows(until_ms=AT_MS)) == 3
        assert await claimed(store, "two", limit=2) == [("c", 1), ("d", 1)]
        assert await claimed(store, "three", limit=2) == [("e", 1)]
        assert await claim(store, "four") == []

    @case
    async def test_misfires_go_by_the_policy(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post())
        clock.advance(hours=5, minutes=30)
        (dispatching,) = await claim(store)
        assert dispatching.nominal_ms == AT_MS + 4 * HOUR_MS
        missed, kept = await ledger(store)
        assert (missed.state.value, missed.nominal_ms, missed.count) == ("missed", AT_MS, 4)
        assert (missed.until_ms, missed.reason) == (AT_MS + 3 * HOUR_MS, "run_once")
        assert (kept.state.value, kept.reason) == ("dispatching", "run_once")

    @case
    async def test_swallowed_rows_do_not_hide_the_next(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A claim goes on past swallowed rows, since an empty result means that nothing is due."""
        names = [f"{number}" for number in range(5)]
        await put(store, *(a_post(name, misfire=Misfire(kind="skip")) for name in names))
        await put(store, a_post("z"))
        clock.advance(hours=1, minutes=30)
        assert await claimed(store, limit=1) == [("z", 1)]
        assert await states(store, "4") == ["missed"]

    @case
    async def test_surplus_stays_for_the_next_claim(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post(grace_ms=9 * HOUR_MS))
        clock.advance(hours=5)
        first = await claim(store, "one", limit=2)
        assert [each.nominal_ms for each in first] == [AT_MS, AT_MS + HOUR_MS]
        assert await states(store) == ["dispatching"] * 5
        second = await claim(store, "two", limit=2)
        assert [(each.nominal_ms, each.tries) for each in second] == [
            (AT_MS + 2 * HOUR_MS, 1),
            (AT_MS + 3 * HOUR_MS, 1),
        ]
        (last,) = await claim(store, "three", limit=2)
        assert (last.nominal_ms, last.tries) == (AT_MS + 4 * HOUR_MS, 1)

    @case
    async def test_catching_up_is_staggered(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post(misfire=ALL_KEPT))
        clock.advance(hours=3, minutes=30)
        now_ms = AT_MS + 2 * HOUR_MS + 30 * MINUTE_MS
        (first,) = await claim(store)
        assert (first.nominal_ms, first.run_at_ms) == (AT_MS, now_ms)
        assert await claim(store, "two") == []
        clock.advance(seconds=1)
        (second,) = await claim(store, "three")
        assert (second.nominal_ms, second.run_at_ms) == (AT_MS + HOUR_MS, now_ms + 1_000)

    @case
    async def test_time_that_the_ledger_has_is_not_posted_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post())
        row = await only_row(store)
        clock.advance(hours=1)
        (dispatching,) = await claim(store)
        assert await answer(store, dispatching, "closed") == 1
        await store.remove(a_key())
        await store.upsert(row)
        assert await claim(store, "two") == []
        assert (await only_row(store)).nominal_ms == AT_MS + HOUR_MS
        assert await states(store) == ["succeeded"]

    @case
    async def test_times_fired_meanwhile_are_covered_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Times dispatched by hand while no tick ran are covered once."""
        await put(store, a_post())
        clock.advance(hours=2)
        await fire(store, nominal_ms=AT_MS + HOUR_MS)
        clock.advance(hours=3, minutes=30)
        assert await claimed(store) == [("a", 1)]
        rows = [(row.nominal_ms, row.count, row.state.value) for row in await ledger(store)]
        assert rows == [
            (AT_MS, 1, "missed"),
            (AT_MS + HOUR_MS, 1, "fired"),
            (AT_MS + 2 * HOUR_MS, 2, "missed"),
            (AT_MS + 4 * HOUR_MS, 1, "dispatching"),
        ]

    @case
    async def test_last_time_is_posted_and_finishes(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post(trigger=once(from_ms(AT_MS))))
        clock.advance(hours=1)
        assert await claimed(store) == [("a", 1)]
        assert await store.list_rows() == []
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "finished"

    @case
    async def test_runs_are_counted_down(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post(max_runs=2))
        for number in range(4):
            clock.advance(hours=1)
            for dispatching in await claim(store, f"c{number}"):
                assert await answer(store, dispatching, "closed", claim_id=f"c{number}") == 1
        assert await states(store) == ["succeeded", "succeeded"]

    @case
    async def test_bad_rule_is_set_apart_and_holds_up_nobody(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post("bad"), a_post("good"))
        bad = next(row for row in await store.list_rows() if row.name == "bad")
        await store.upsert(replace(bad, trigger=BAD))
        clock.advance(hours=1)
        assert await claimed(store, limit=1) == [("good", 1)]
        assert await states(store, "bad") == ["quarantined"]
        assert [each.key for each in await store.list_quarantined()] == [a_key("bad")]

    @case
    async def test_definition_may_be_kept_elsewhere(self, store: Store) -> None:
        await store.upsert(a_row("elsewhere", hand_over="http"))
        assert await claimed(store) == [("elsewhere", 1)]

    @case
    async def test_lost_answer_is_asked_for_again(self, store: Store, clock: ManualClock) -> None:
        await put(store, *(a_post(name) for name in "abc"))
        clock.advance(hours=1)
        first = await claim(store, limit=2)
        clock.advance(seconds=59)
        assert await claim(store, limit=2) == first
        assert await claimed(store, "two") == [("c", 1)]

    @case
    async def test_what_ended_is_not_given_again(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_post("a"), a_post("b"))
        clock.advance(hours=1)
        first, second = await claim(store)
        assert await answer(store, first, "closed") == 1
        assert await claim(store) == [second]
        assert await answer(store, second, "failed") == 1
        clock.advance(hours=1)
        assert await claimed(store) == [("a", 1), ("b", 1)]

    @case
    async def test_denial_is_its_own_end(self, store: Store, clock: ManualClock) -> None:
        first = await claim_one(store, clock)
        assert await answer(store, first, "denied", reason="answered 403 denied") == 1
        (row,) = await store.list_occurrences(first.schedule_id)
        assert (row.state.value, row.reason) == ("denied", "answered 403 denied")
        assert row.ended_at_ms == AT_MS
        assert await claim(store) == []

    @case
    async def test_ids_of_ticks_are_their_own(self, store: Store, clock: ManualClock) -> None:
        await claim_one(store, clock, claim_id="same")
        await store.upsert(a_row("b"))
        assert [each.name for each in await store.claim_due(claim_id="same")] == ["b"]

    @case
    async def test_ticks_at_once_share(self, store: Store, clock: ManualClock) -> None:
        names = [f"{number:02}" for number in range(20)]
        await put(store, *(a_post(name) for name in names))
        clock.advance(hours=1)
        claims = (claim(store, f"c{number}", limit=6) for number in range(4))
        shares = await asyncio.gather(*claims)
        taken = sorted(each.name for share in shares for each in share)
        rest = sorted(each.name for each in await claim(store, "rest"))
        assert sorted(taken + rest) == names

    @case
    async def test_impossible_claims_are_refused(self, store: Store) -> None:
        for limit, lease_ms in ((0, 1), (MAX_DISPATCHES + 1, 1), (1, 0), (1, MAX_LEASE_MS + 1)):
            with pytest.raises(InvalidInput):
                await claim(store, limit=limit, lease_ms=lease_ms)
        for claim_id in ("", "x" * 129):
            with pytest.raises(InvalidInput):
                await claim(store, claim_id)
