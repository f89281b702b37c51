"""Rows that cannot be evaluated: quarantined with their error, without blocking others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from duly.model.index_rows import IndexRow, trigger_text
from duly.stores.port import ScheduleIndex
from duly.testing.conformance.index.claims import next_fire
from duly.testing.conformance.samples import MINUTE_MS, START_MS, a_row, as_claimed
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import every

BAD = '{"v":1,"kind":"cron","expression":"61 * * * *"}'


def a_bad_row(name: str = "bad", text: str = BAD) -> IndexRow:
    """Return a row with an invalid trigger, due earlier than the valid rows."""
    return replace(a_row(name, at=START - timedelta(minutes=1)), trigger=text)


class QuarantineCases(StoreConformance):
    """Cases for claims that meet invalid rows."""

    @case
    async def test_bad_row_is_set_apart_and_good_row_fires(self, store: ScheduleIndex) -> None:
        bad, good = a_bad_row(), a_row("good")
        await store.upsert(bad)
        await store.upsert(good)
        assert await store.claim_due() == [as_claimed(good)]
        assert await next_fire(store, START_MS + MINUTE_MS) == START_MS + MINUTE_MS

    @case
    async def test_bad_rows_starve_nobody(self, store: ScheduleIndex) -> None:
        for number in range(200):
            await store.upsert(a_bad_row(f"bad-{number:03}"))
        await store.upsert(a_row("good"))
        assert [each.name for each in await store.claim_due(limit=10)] == ["good"]

    @case
    async def test_bad_rows_among_good_ones_hold_up_nobody(self, store: ScheduleIndex) -> None:
        for number in range(20):
            name = f"{number:02}"
            await store.upsert(a_bad_row(name) if number % 2 else a_row(name))
        names: list[str] = []
        while claimed := await store.claim_due(limit=4):
            assert len(claimed) <= 4
            names += [each.name for each in claimed]
        assert names == [f"{number:02}" for number in range(0, 20, 2)]

    @case
    async def test_only_bad_rows_give_nothing(self, store: ScheduleIndex) -> None:
        for name in "abc":
            await store.upsert(a_bad_row(name))
        assert await store.claim_due(limit=2) == []
        await store.upsert(a_row("good"))
        assert [each.name for each in await store.claim_due(limit=2)] == ["good"]

    @case
    async def test_every_kind_of_nonsense_is_set_apart(self, store: ScheduleIndex) -> None:
        unbound = trigger_text(every(minutes=1))
        texts = ["", "{", "null", "[]", '{"v":1}', '{"v":99,"kind":"cron"}', unbound]
        for number, text in enumerate(texts):
            await store.upsert(a_bad_row(f"{number}", text))
        assert await store.claim_due() == []

    @case
    async def test_claim_with_an_id_sets_apart_too(self, store: ScheduleIndex) -> None:
        await store.upsert(a_bad_row())
        await store.upsert(a_row("good"))
        claimed = await store.claim_due(limit=1, claim_id="one")
        assert [each.name for each in claimed] == ["good"]
        assert await store.claim_due(limit=1, claim_id="one") == claimed

    @case
    async def test_row_written_anew_is_claimed_again(self, store: ScheduleIndex) -> None:
        await store.upsert(a_bad_row("a"))
        await store.claim_due()
        await store.upsert(a_row("a"))
        assert [each.name for each in await store.claim_due()] == ["a"]
