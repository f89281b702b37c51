"""Claims: due rows and their order, how far the row advances, and the reported times."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from duly.errors import InvalidInput
from duly.model.index import MAX_CLAIM
from duly.model.index_rows import MAX_MISSED, TRIGGER_VERSION
from duly.model.schedules import HandOver
from duly.stores.port import ScheduleIndex
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import (
    HOUR_MS,
    HOURLY,
    MINUTE_MS,
    ONCE,
    START_MS,
    a_key,
    a_row,
    as_claimed,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, every


async def next_fire(index: ScheduleIndex, run_at_ms: int) -> int:
    """Check that exactly one row becomes due at a run time; return its nominal time."""
    assert await index.claim_due(run_at_ms - 1) == []
    (claimed,) = await index.claim_due(run_at_ms)
    assert (claimed.run_at_ms, claimed.missed) == (run_at_ms, 0)
    return claimed.nominal_ms


class ClaimCases(StoreConformance):
    """Cases for claim_due() without a claim id."""

    @case
    async def test_nothing_due_gives_nothing(self, store: ScheduleIndex) -> None:
        assert await store.claim_due() == []
        await store.upsert(a_row(at=START + timedelta(minutes=1)))
        assert await store.claim_due() == []

    @case
    async def test_limit_is_a_hundred_unless_told(self, store: ScheduleIndex) -> None:
        for number in range(150):
            await store.upsert(a_row(f"{number:03}"))
        first, second = await store.claim_due(), await store.claim_due()
        assert [len(first), len(second)] == [100, 50]
        assert len({each.name for each in [*first, *second]}) == 150

    @case
    async def test_limit_is_kept(self, store: ScheduleIndex) -> None:
        for name in "abcde":
            await store.upsert(a_row(name))
        sizes = [len(await store.claim_due(limit=2)) for _ in range(4)]
        assert sizes == [2, 2, 1, 0]

    @case
    async def test_senseless_limits_are_refused(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row())
        for limit in (-1, 0, MAX_CLAIM + 1):
            with pytest.raises(InvalidInput):
                await store.claim_due(limit=limit)
        assert len(await store.claim_due(limit=MAX_CLAIM)) == 1

    @case
    async def test_due_is_inclusive(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row())
        assert await store.claim_due(START_MS - 1) == []
        assert len(await store.claim_due(START_MS)) == 1

    @case
    async def test_second_claim_is_empty(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row())
        assert len(await store.claim_due(START_MS)) == 1
        assert await store.claim_due(START_MS) == []

    @case
    async def test_claims_tell_what_fired(self, store: ScheduleIndex) -> None:
        row = a_row("Frühstück/1 %", HOURLY, scope="user:ada@example.org|β", priority=3)
        await store.upsert(row)
        assert await store.claim_due(START_MS + 5) == [as_claimed(row)]

    @case
    async def test_advance_passes_now(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row(trigger=HOURLY))
        await store.claim_due(START_MS + 3 * HOUR_MS)
        assert await next_fire(store, START_MS + 4 * HOUR_MS) == START_MS + 4 * HOUR_MS

    @case
    async def test_advance_passes_what_fired(self, store: ScheduleIndex) -> None:
        """A claim advances past the row's time even if that is not a time of its trigger."""
        await store.upsert(a_row(trigger=HOURLY, at=START + timedelta(minutes=7)))
        (claimed,) = await store.claim_due(START_MS + 7 * MINUTE_MS)
        assert claimed.nominal_ms == START_MS + 7 * MINUTE_MS
        assert await next_fire(store, START_MS + HOUR_MS) == START_MS + HOUR_MS

    @case
    async def test_order_is_time_then_priority_then_age(self, store: ScheduleIndex) -> None:
        for name, minutes, priority in (
            ("late", 2, 9),
            ("low", 1, -1),
            ("same-b", 1, 0),
            ("same-a", 1, 0),
            ("high", 1, 5),
            ("early", 0, 0),
        ):
            await store.upsert(
                a_row(name, at=START + timedelta(minutes=minutes), priority=priority)
            )
        expected = ["early", "high", "same-b", "same-a", "low", "late"]
        claimed = await store.claim_due(START_MS + HOUR_MS, limit=4)
        claimed += await store.claim_due(START_MS + HOUR_MS)
        assert [each.name for each in claimed] == expected

    @case
    async def test_order_holds_across_flows_and_hand_overs(self, store: ScheduleIndex) -> None:
        # One flow has most rows and many have one, so per-flow reads must be merged.
        flows = ["bulk"] * 90 + [f"flow-{number:02}" for number in range(60)]
        hand_overs: tuple[HandOver, ...] = ("jobs", "http", "external")
        expected = []
        for number, flow in enumerate(flows):
            minutes, priority = number * 37 % 50, number // 50
            row = a_row(
                f"row-{number:03}",
                at=START + timedelta(minutes=minutes),
                flow=flow,
                priority=priority,
                hand_over=hand_overs[number % 3],
            )
            await store.upsert(row)
            expected.append((minutes, -priority, number))
        taken: list[str] = []
        while claimed := await store.claim_due(START_MS + HOUR_MS, limit=40):
            taken += [each.name for each in claimed]
        assert taken == [f"row-{number:03}" for _, _, number in sorted(expected)]

    @case
    async def test_flows_are_claimed_apart(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row("a"))
        await store.upsert(a_row("a", schedule_id="other", flow="invoices"))
        assert await store.claim_due(flow="nobody") == []
        assert [each.flow for each in await store.claim_due(flow="invoices")] == ["invoices"]
        assert [each.flow for each in await store.claim_due()] == ["reminders"]

    @case
    async def test_scopes_have_their_own_rows(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row("a"))
        await store.upsert(a_row("a", schedule_id="other", scope="user:bob"))
        assert len(await store.claim_due()) == 2

    @case
    async def test_store_clock_decides(self, store: ScheduleIndex, clock: ManualClock) -> None:
        await store.upsert(a_row(at=START + timedelta(minutes=1)))
        clock.advance(minutes=1, milliseconds=-1)
        assert await store.claim_due() == []
        clock.advance(milliseconds=1)
        assert len(await store.claim_due()) == 1

    @case
    async def test_caller_ahead_of_the_store_claims_once(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row())
        ahead = START_MS + HOUR_MS
        assert len(await store.claim_due(ahead)) == 1
        assert await store.claim_due(ahead) == []
        assert await store.claim_due() == []
        assert await next_fire(store, ahead + MINUTE_MS) == ahead + MINUTE_MS

    @case
    async def test_caller_behind_the_store_claims_nothing_new(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row())
        assert await store.claim_due(START_MS - HOUR_MS) == []
        assert len(await store.claim_due()) == 1
        assert await store.claim_due(START_MS - HOUR_MS) == []

    @case
    async def test_seconds_are_no_milliseconds(self, store: ScheduleIndex) -> None:
        with pytest.raises(InvalidInput, match="seconds"):
            a_row(nominal_ms=START_MS // 1000)
        with pytest.raises(InvalidInput, match="seconds"):
            a_row(run_at_ms=START_MS // 1000)
        await store.upsert(a_row())
        with pytest.raises(InvalidInput):
            await store.claim_due(START_MS // 1000)

    @case
    async def test_missed_times_are_counted(self, store: ScheduleIndex) -> None:
        for late_ms, missed in (
            (0, 0),
            (MINUTE_MS - 1, 0),
            (MINUTE_MS, 1),
            (HOUR_MS - 1, 59),
            (HOUR_MS, 60),
        ):
            await store.upsert(a_row(f"late-{late_ms}"))
            (claimed,) = await store.claim_due(START_MS + late_ms)
            assert (late_ms, claimed.missed) == (late_ms, missed)
            assert claimed.nominal_ms == START_MS
            await store.remove(a_key(f"late-{late_ms}"))

    @case
    async def test_missed_count_has_an_end(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row(trigger=every(seconds=1, start_at=START)))
        late_ms = START_MS + 2 * MAX_MISSED * 1_000
        (claimed,) = await store.claim_due(late_ms)
        assert claimed.missed == MAX_MISSED
        assert await next_fire(store, late_ms + 1_000) == late_ms + 1_000

    @case
    async def test_one_time_fires_once(self, store: ScheduleIndex) -> None:
        row = a_row(trigger=ONCE)
        await store.upsert(row)
        assert await store.claim_due(START_MS + HOUR_MS) == [as_claimed(row)]
        assert await store.claim_due(START_MS + 366 * 24 * HOUR_MS) == []

    @case
    async def test_last_time_of_a_trigger_ends_its_row(self, store: ScheduleIndex) -> None:
        trigger = cron("* * * * *", end_at=START + timedelta(minutes=1))
        await store.upsert(a_row(trigger=trigger))
        assert len(await store.claim_due(START_MS)) == 1
        assert len(await store.claim_due(START_MS + MINUTE_MS)) == 1
        assert await store.claim_due(START_MS + HOUR_MS) == []

    @case
    async def test_runs_are_counted_down(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row(runs_left=2))
        assert len(await store.claim_due(START_MS + 10 * MINUTE_MS)) == 1
        assert len(await store.claim_due(START_MS + 11 * MINUTE_MS)) == 1
        assert await store.claim_due(START_MS + HOUR_MS) == []

    @case
    async def test_run_time_decides_not_nominal_time(self, store: ScheduleIndex) -> None:
        row = a_row(trigger=cron("0 * * * *", spread=600))
        offset_ms = row.run_at_ms - row.nominal_ms
        assert 0 < offset_ms < 600_000
        await store.upsert(row)
        assert await store.claim_due(row.run_at_ms - 1) == []
        assert await store.claim_due(row.run_at_ms) == [as_claimed(row)]
        assert await next_fire(store, row.run_at_ms + HOUR_MS) == START_MS + HOUR_MS

    @case
    async def test_newer_trigger_versions_are_left_alone(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row("newer", trigger_version=TRIGGER_VERSION + 1))
        await store.upsert(a_row("known"))
        assert [each.name for each in await store.claim_due(limit=1)] == ["known"]
        assert await store.claim_due() == []

    @case
    async def test_claims_at_the_same_time_share_nothing(self, store: ScheduleIndex) -> None:
        for number in range(60):
            await store.upsert(a_row(f"{number:02}"))
        claims = await asyncio.gather(*(store.claim_due(limit=10) for _ in range(8)))
        claims.append(await store.claim_due())
        names = [each.name for claim in claims for each in claim]
        assert sorted(names) == [f"{number:02}" for number in range(60)]
