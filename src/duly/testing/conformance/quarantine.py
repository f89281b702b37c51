"""Rows that cannot be evaluated: set apart with their error, in nobody's way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from duly.occurrences import IndexRow, trigger_text
from duly.store import Quarantined, Store
from duly.testing.conformance.samples import MINUTE_MS, START_MS, a_key, a_row, as_claimed, only_row
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import every

BAD = '{"v":1,"kind":"cron","expression":"61 * * * *"}'


def a_bad_row(name: str = "bad", text: str = BAD) -> IndexRow:
    """A row older than the good ones whose trigger is refused."""
    return replace(a_row(name, at=START - timedelta(minutes=1)), trigger=text)


class QuarantineCases(StoreConformance):
    """What a claim does with bad rows."""

    @case
    async def test_bad_row_is_set_apart_and_good_row_fires(self, store: Store) -> None:
        bad, good = a_bad_row(), a_row("good")
        await store.upsert(bad)
        await store.upsert(good)
        assert await store.claim_due() == [as_claimed(good)]
        assert await only_row(store) == replace(
            good, nominal_ms=START_MS + MINUTE_MS, run_at_ms=START_MS + MINUTE_MS, version=2
        )
        (quarantined,) = await store.list_quarantined()
        assert quarantined.error
        assert quarantined == Quarantined(
            a_key("bad"), bad.schedule_id, bad.nominal_ms, quarantined.error
        )
        health = await store.index_health()
        assert (health.quarantined, health.rows, health.due) == (1, 1, 0)
        assert not health.is_healthy

    @case
    async def test_bad_rows_starve_nobody(self, store: Store) -> None:
        for number in range(200):
            await store.upsert(a_bad_row(f"bad-{number:03}"))
        await store.upsert(a_row("good"))
        assert [each.name for each in await store.claim_due(limit=10)] == ["good"]
        assert len(await store.list_quarantined(limit=500)) == 200
        assert len(await store.list_quarantined(limit=3)) == 3

    @case
    async def test_bad_rows_among_good_ones_hold_up_nobody(self, store: Store) -> None:
        for number in range(20):
            name = f"{number:02}"
            await store.upsert(a_bad_row(name) if number % 2 else a_row(name))
        names: list[str] = []
        while claimed := await store.claim_due(limit=4):
            assert len(claimed) <= 4
            names += [each.name for each in claimed]
        assert names == [f"{number:02}" for number in range(0, 20, 2)]

    @case
    async def test_only_bad_rows_give_nothing(self, store: Store) -> None:
        for name in "abc":
            await store.upsert(a_bad_row(name))
        assert await store.claim_due(limit=2) == []
        assert len(await store.list_quarantined()) == 3
        assert await store.claim_due(limit=2) == []

    @case
    async def test_every_kind_of_nonsense_is_set_apart(self, store: Store) -> None:
        unbound = trigger_text(every(minutes=1))
        texts = ["", "{", "null", "[]", '{"v":1}', '{"v":99,"kind":"cron"}', unbound]
        for number, text in enumerate(texts):
            await store.upsert(a_bad_row(f"{number}", text))
        assert await store.claim_due() == []
        assert len(await store.list_quarantined()) == len(texts)

    @case
    async def test_claim_with_an_id_sets_apart_too(self, store: Store) -> None:
        await store.upsert(a_bad_row())
        await store.upsert(a_row("good"))
        claimed = await store.claim_due(limit=1, claim_id="one")
        assert [each.name for each in claimed] == ["good"]
        assert await store.claim_due(limit=1, claim_id="one") == claimed
        assert len(await store.list_quarantined()) == 1

    @case
    async def test_row_written_anew_is_claimed_again(self, store: Store) -> None:
        bad = a_bad_row("a")
        await store.upsert(bad)
        await store.claim_due()
        await store.upsert(a_row("a"))
        assert await store.list_quarantined() == []
        assert [each.name for each in await store.claim_due()] == ["a"]

    @case
    async def test_same_row_written_anew_is_tried_again(self, store: Store) -> None:
        """A newer release may know what this one does not."""
        bad = a_bad_row()
        await store.upsert(bad)
        await store.claim_due()
        await store.upsert(bad)
        assert await store.list_quarantined() == []
        assert replace(await only_row(store), version=1) == bad

    @case
    async def test_quarantined_row_can_be_removed(self, store: Store) -> None:
        await store.upsert(a_bad_row())
        await store.claim_due()
        await store.remove(a_key("bad"))
        assert await store.list_quarantined() == []
