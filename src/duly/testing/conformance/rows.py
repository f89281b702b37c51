"""Rows: writing them, reading them, taking them away."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duly.errors import Conflict, InvalidInput
from duly.store import MAX_PAGE, ScheduleIndex, Store
from duly.testing.conformance.samples import (
    DAILY,
    HOUR_MS,
    HOURLY,
    MINUTE_MS,
    ONCE,
    START_MS,
    a_key,
    a_row,
    as_claimed,
    only_row,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import Trigger, cron, parse_trigger

NUMBERS = itertools.count(1)


class RowCases(StoreConformance):
    """upsert(), remove(), list_rows()."""

    @case
    async def test_index_is_three_awaitable_calls(self, store: Store) -> None:
        named = {name for name in vars(ScheduleIndex) if not name.startswith("_")}
        assert named == {"upsert", "claim_due", "remove"}
        for call in (store.upsert(a_row()), store.remove(a_key()), store.claim_due()):
            assert inspect.isawaitable(call)
            await call

    @case
    async def test_rows_come_back_as_they_went(self, store: Store) -> None:
        rows = [
            a_row("plain"),
            a_row(
                "full",
                DAILY,
                at=START + timedelta(minutes=1),
                hand_over="http",
                priority=-4,
                policies='{"grace_ms":1}',
                runs_left=3,
            ),
        ]
        for row in rows:
            await store.upsert(row)
        assert await store.list_rows() == rows

    @case
    async def test_upsert_is_idempotent(self, store: Store) -> None:
        row = a_row()
        await store.upsert(row)
        await store.upsert(row)
        assert await only_row(store) == replace(row, version=2)

    @case
    async def test_versions_are_the_stores(self, store: Store) -> None:
        await store.upsert(a_row(version=17))
        assert (await only_row(store)).version == 1

    @case
    async def test_last_write_wins(self, store: Store) -> None:
        await store.upsert(a_row(trigger=HOURLY, at=START + timedelta(hours=5)))
        second = a_row(trigger=cron("30 * * * *"), at=START + timedelta(minutes=30))
        await store.upsert(second)
        assert await only_row(store) == replace(second, version=2)

    @case
    async def test_another_schedule_takes_over_the_key(self, store: Store) -> None:
        await store.upsert(a_row(at=START + timedelta(hours=5)))
        recreated = a_row(schedule_id="id-again")
        await store.upsert(recreated)
        assert await only_row(store) == replace(recreated, version=2)

    @case
    async def test_a_schedule_has_one_row(self, store: Store) -> None:
        row = a_row("a")
        await store.upsert(row)
        with pytest.raises((Conflict, InvalidInput)):
            await store.upsert(a_row("b", schedule_id=row.schedule_id))
        assert await only_row(store) == row

    @case
    async def test_upsert_parses_no_trigger(self, store: Store) -> None:
        row = replace(a_row(), trigger="no trigger at all")
        await store.upsert(row)
        assert await only_row(store) == row

    @case
    async def test_upsert_asks_no_parser(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parse, asked = parse_trigger, list[object]()

        def watched(words: object, **options: Any) -> Trigger:
            asked.append(words)
            return parse(words, **options)

        for name, module in list(sys.modules.items()):
            if name.startswith("duly.") and vars(module).get("parse_trigger") is parse:
                monkeypatch.setattr(module, "parse_trigger", watched)
        # A rule that nobody had before, so that no cache holds it.
        end = START + timedelta(days=1, milliseconds=next(NUMBERS))
        row = a_row(trigger=cron("* * * * *", end_at=end))
        await store.upsert(row)
        await store.upsert(replace(row, priority=1))
        assert asked == []
        assert len(await store.claim_due()) == 1
        assert asked == [row.trigger], "the parser of claims is not the one that was watched"

    @case
    async def test_same_timing_never_sets_the_hand_back(self, store: Store) -> None:
        later = a_row(at=START + timedelta(minutes=2))
        await store.upsert(later)
        await store.upsert(a_row(priority=4))
        assert await only_row(store) == replace(later, priority=4, version=2)
        latest = a_row(at=START + timedelta(minutes=3))
        await store.upsert(latest)
        assert await only_row(store) == replace(latest, version=3)

    @case
    async def test_slow_writer_causes_no_second_fire(self, store: Store) -> None:
        row = a_row(priority=1)
        await store.upsert(row)
        await store.claim_due(START_MS)
        await store.upsert(replace(row, priority=2))
        assert await store.claim_due(START_MS) == []
        moved = await only_row(store)
        assert (moved.nominal_ms, moved.priority) == (START_MS + MINUTE_MS, 2)
        assert moved.version == 3

    @case
    async def test_new_timing_may_set_the_hand_back(self, store: Store) -> None:
        await store.upsert(a_row(trigger=HOURLY))
        await store.claim_due(START_MS)
        sooner = a_row(trigger=cron("*/5 * * * *"), at=START + timedelta(minutes=5))
        await store.upsert(sooner)
        assert await only_row(store) == replace(sooner, version=3)

    @case
    async def test_writer_and_claimer_at_once_fire_once(self, store: Store) -> None:
        row = a_row()
        await store.upsert(row)
        claims, _, more, _ = await asyncio.gather(
            store.claim_due(START_MS),
            store.upsert(row),
            store.claim_due(START_MS),
            store.upsert(row),
        )
        assert len([*claims, *more, *await store.claim_due(START_MS)]) == 1
        assert (await only_row(store)).nominal_ms == START_MS + MINUTE_MS

    @case
    async def test_writers_at_once_leave_one_row(self, store: Store) -> None:
        for _ in range(8):  # one round alone seldom meets a race
            await asyncio.gather(*(store.upsert(a_row(priority=number)) for number in range(6)))
            assert (await only_row(store)).version == 6
            await store.remove(a_key("a"))

    @case
    async def test_remove_takes_one_row_away(self, store: Store) -> None:
        await store.upsert(a_row("a"))
        await store.upsert(a_row("b"))
        await store.remove(a_key("a"))
        assert await only_row(store) == a_row("b")
        assert [each.name for each in await store.claim_due()] == ["b"]

    @case
    async def test_remove_of_nothing_is_fine(self, store: Store) -> None:
        await store.upsert(a_row("a"))
        await store.remove(a_key("nothing"))
        await store.remove(a_key("a", scope="user:ghost"))
        await store.remove(a_key("a", flow="ghost"))
        assert await only_row(store) == a_row("a")

    @case
    async def test_rows_are_listed_in_pages(self, store: Store) -> None:
        for number in range(5):
            await store.upsert(a_row(f"{number}", at=START + timedelta(hours=number)))
        await store.upsert(a_row("x", schedule_id="x", flow="invoices"))
        assert len(await store.list_rows()) == 6
        assert [row.name for row in await store.list_rows(flow="invoices")] == ["x"]
        until = await store.list_rows(flow="reminders", until_ms=START_MS + 2 * HOUR_MS)
        assert [row.name for row in until] == ["0", "1", "2"]
        assert [row.name for row in await store.list_rows(flow="reminders", limit=1)] == ["0"]
        for limit in (0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput):
                await store.list_rows(limit=limit)

    @case
    async def test_health_counts_rows(self, store: Store) -> None:
        health = await store.index_health()
        assert (health.rows, health.due, health.oldest_due_ms) == (0, 0, None)
        await store.upsert(a_row("a", at=START - timedelta(minutes=3)))
        await store.upsert(a_row("b", ONCE))
        await store.upsert(a_row("c", at=START + timedelta(minutes=1)))
        health = await store.index_health()
        assert (health.rows, health.due) == (3, 2)
        assert health.oldest_due_ms == START_MS - 3 * MINUTE_MS
        assert (health.active, health.missing, health.quarantined) == (0, 0, 0)
        assert health.is_healthy

    @case
    async def test_claimed_rows_can_be_written_anew(self, store: Store) -> None:
        row = a_row(trigger=ONCE)
        await store.upsert(row)
        await store.claim_due()
        again = a_row(trigger=ONCE, at=START + timedelta(minutes=1))
        await store.upsert(again)
        assert await store.claim_due(START_MS + MINUTE_MS) == [as_claimed(again)]
