"""Writing and removing rows, as observed by claims."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duly.stores.port import ScheduleIndex
from duly.testing.conformance.index.claims import next_fire
from duly.testing.conformance.samples import (
    HOURLY,
    MINUTE_MS,
    ONCE,
    START_MS,
    a_key,
    a_row,
    as_claimed,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import Trigger, cron, parse_trigger

NUMBERS = itertools.count(1)


class RowCases(StoreConformance):
    """Cases for upsert() and remove()."""

    @case
    async def test_index_is_three_awaitable_calls(self, store: ScheduleIndex) -> None:
        named = {name for name in vars(ScheduleIndex) if not name.startswith("_")}
        assert named == {"upsert", "claim_due", "remove"}
        for call in (store.upsert(a_row()), store.remove(a_key()), store.claim_due()):
            assert inspect.isawaitable(call)
            await call

    @case
    async def test_upsert_is_idempotent(self, store: ScheduleIndex) -> None:
        row = a_row()
        await store.upsert(row)
        await store.upsert(row)
        assert await store.claim_due() == [as_claimed(row, version=2)]

    @case
    async def test_versions_are_the_stores(self, store: ScheduleIndex) -> None:
        row = a_row(version=17)
        await store.upsert(row)
        assert await store.claim_due() == [as_claimed(row, version=1)]

    @case
    async def test_last_write_wins(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row(trigger=HOURLY, at=START + timedelta(hours=5)))
        second = a_row(trigger=cron("30 * * * *"), at=START + timedelta(minutes=30))
        await store.upsert(second)
        assert await store.claim_due(START_MS + 30 * MINUTE_MS) == [as_claimed(second, version=2)]
        assert await next_fire(store, START_MS + 90 * MINUTE_MS) == START_MS + 90 * MINUTE_MS

    @case
    async def test_another_schedule_takes_over_the_key(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row(at=START + timedelta(hours=5)))
        recreated = a_row(schedule_id="id-again")
        await store.upsert(recreated)
        assert await store.claim_due() == [as_claimed(recreated, version=2)]

    @case
    async def test_upsert_parses_no_trigger(self, store: ScheduleIndex) -> None:
        await store.upsert(replace(a_row(), trigger="no trigger at all"))
        assert await store.claim_due() == []

    @case
    async def test_upsert_asks_no_parser(
        self, store: ScheduleIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parse, asked = parse_trigger, list[object]()

        def watched(words: object, **options: Any) -> Trigger:
            asked.append(words)
            return parse(words, **options)

        for name, module in list(sys.modules.items()):
            if name.startswith("duly.") and vars(module).get("parse_trigger") is parse:
                monkeypatch.setattr(module, "parse_trigger", watched)
        # A trigger not used before, so that no cache holds it.
        end = START + timedelta(days=1, milliseconds=next(NUMBERS))
        row = a_row(trigger=cron("* * * * *", end_at=end))
        await store.upsert(row)
        await store.upsert(replace(row, priority=1))
        assert asked == []
        assert len(await store.claim_due()) == 1
        assert asked == [row.trigger], "claims do not use the parser patched by this test"

    @case
    async def test_same_timing_never_sets_the_hand_back(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row(at=START + timedelta(minutes=2)))
        await store.upsert(a_row(priority=4))
        assert await next_fire(store, START_MS + 2 * MINUTE_MS) == START_MS + 2 * MINUTE_MS
        await store.upsert(a_row(at=START + timedelta(minutes=5)))
        assert await next_fire(store, START_MS + 5 * MINUTE_MS) == START_MS + 5 * MINUTE_MS

    @case
    async def test_slow_writer_causes_no_second_fire(self, store: ScheduleIndex) -> None:
        row = a_row(priority=1)
        await store.upsert(row)
        await store.claim_due(START_MS)
        await store.upsert(replace(row, priority=2))
        assert await store.claim_due(START_MS) == []
        (claimed,) = await store.claim_due(START_MS + MINUTE_MS)
        assert (claimed.nominal_ms, claimed.version) == (START_MS + MINUTE_MS, 3)

    @case
    async def test_new_timing_may_set_the_hand_back(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row(trigger=HOURLY))
        await store.claim_due(START_MS)
        sooner = a_row(trigger=cron("*/5 * * * *"), at=START + timedelta(minutes=5))
        await store.upsert(sooner)
        assert await store.claim_due(START_MS + 5 * MINUTE_MS) == [as_claimed(sooner, version=3)]

    @case
    async def test_writer_and_claimer_at_once_fire_once(self, store: ScheduleIndex) -> None:
        row = a_row()
        await store.upsert(row)
        claims, _, more, _ = await asyncio.gather(
            store.claim_due(START_MS),
            store.upsert(row),
            store.claim_due(START_MS),
            store.upsert(row),
        )
        assert len([*claims, *more, *await store.claim_due(START_MS)]) == 1
        assert await next_fire(store, START_MS + MINUTE_MS) == START_MS + MINUTE_MS

    @case
    async def test_writers_at_once_leave_one_row(self, store: ScheduleIndex) -> None:
        for _ in range(8):  # one round rarely hits the race
            await asyncio.gather(*(store.upsert(a_row(priority=number)) for number in range(6)))
            assert await store.claim_due() == [as_claimed(a_row(), version=6)]
            await store.remove(a_key("a"))

    @case
    async def test_remove_takes_one_row_away(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row("a"))
        await store.upsert(a_row("b"))
        await store.remove(a_key("a"))
        assert await store.claim_due() == [as_claimed(a_row("b"))]

    @case
    async def test_remove_of_nothing_is_fine(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row("a"))
        await store.remove(a_key("nothing"))
        await store.remove(a_key("a", scope="user:ghost"))
        await store.remove(a_key("a", flow="ghost"))
        assert await store.claim_due() == [as_claimed(a_row("a"))]

    @case
    async def test_claimed_rows_can_be_written_anew(self, store: ScheduleIndex) -> None:
        row = a_row(trigger=ONCE)
        await store.upsert(row)
        await store.claim_due()
        again = a_row(trigger=ONCE, at=START + timedelta(minutes=1))
        await store.upsert(again)
        assert await store.claim_due(START_MS + MINUTE_MS) == [as_claimed(again)]
