"""Claim ids: a claim whose answer was lost can be asked again."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from duly.errors import InvalidInput
from duly.store import Store
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    ONCE,
    START_MS,
    a_key,
    a_row,
    as_claimed,
    only_row,
)
from duly.testing.conformance.suite import START, StoreConformance, case


class ClaimIdCases(StoreConformance):
    """claim_due() with a claim id."""

    @case
    async def test_same_id_gives_the_same_answer(self, store: Store) -> None:
        for name, minutes, priority in (("d", 0, 0), ("c", 0, 1), ("b", -5, 0), ("a", 0, 0)):
            at = START + timedelta(minutes=minutes)
            await store.upsert(a_row(name, at=at, priority=priority))
        first = await store.claim_due(limit=3, claim_id="one")
        assert [each.name for each in first] == ["b", "c", "d"]
        assert [each.missed for each in first] == [5, 0, 0]
        assert await store.claim_due(limit=3, claim_id="one") == first
        assert [each.name for each in await store.claim_due(claim_id="two")] == ["a"]

    @case
    async def test_same_id_claims_nothing_more(self, store: Store) -> None:
        await store.upsert(a_row())
        first = await store.claim_due(START_MS, claim_id="one")
        assert await store.claim_due(START_MS + HOUR_MS, claim_id="one") == first
        assert (await only_row(store)).nominal_ms == START_MS + MINUTE_MS

    @case
    async def test_finished_rows_are_answered_again(self, store: Store) -> None:
        row = a_row(trigger=ONCE)
        await store.upsert(row)
        assert await store.claim_due(claim_id="one") == [as_claimed(row)]
        assert await store.list_rows() == []
        assert await store.claim_due(claim_id="one") == [as_claimed(row)]

    @case
    async def test_removed_rows_are_answered_again(self, store: Store) -> None:
        row = a_row()
        await store.upsert(row)
        first = await store.claim_due(claim_id="one")
        await store.remove(a_key())
        assert await store.claim_due(claim_id="one") == first == [as_claimed(row)]

    @case
    async def test_empty_answers_leave_the_id_free(self, store: Store) -> None:
        assert await store.claim_due(claim_id="one") == []
        await store.upsert(a_row())
        assert len(await store.claim_due(claim_id="one")) == 1

    @case
    async def test_no_occurrence_is_taken_twice(self, store: Store) -> None:
        """A row set back to a time that the ledger has moves on without firing."""
        row = a_row(trigger=ONCE)
        await store.upsert(row)
        assert len(await store.claim_due(claim_id="one")) == 1
        await store.upsert(row)
        assert await store.claim_due(claim_id="two") == []
        assert await store.list_rows() == []

    @case
    async def test_repeated_occurrences_hide_no_others(self, store: Store) -> None:
        repeated = a_row("a", at=START - timedelta(minutes=1))
        await store.upsert(repeated)
        await store.claim_due(START_MS - MINUTE_MS, claim_id="one")
        await store.remove(a_key("a"))
        await store.upsert(repeated)
        await store.upsert(a_row("b"))
        claimed = await store.claim_due(START_MS, limit=1, claim_id="two")
        assert [each.name for each in claimed] == ["b"]
        assert len(await store.list_rows(until_ms=START_MS)) == 0

    @case
    async def test_asking_twice_at_once_claims_once(self, store: Store) -> None:
        for name in "abcd":
            await store.upsert(a_row(name))
        one, two = await asyncio.gather(
            store.claim_due(limit=2, claim_id="one"), store.claim_due(limit=2, claim_id="one")
        )
        assert one == two
        assert len(await store.claim_due()) == 2

    @case
    async def test_long_ids_are_refused(self, store: Store) -> None:
        await store.upsert(a_row())
        with pytest.raises(InvalidInput):
            await store.claim_due(claim_id="x" * 129)
        assert len(await store.claim_due(claim_id="x" * 128)) == 1
