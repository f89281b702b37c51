"""Claim ids: a claim whose answer was lost can be repeated."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from duly.errors import InvalidInput
from duly.stores.port import ScheduleIndex
from duly.testing.conformance.index.claims import next_fire
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    ONCE,
    START_MS,
    a_key,
    a_row,
    as_claimed,
)
from duly.testing.conformance.suite import START, StoreConformance, case


class ClaimIdCases(StoreConformance):
    """Cases for claim_due() with a claim id."""

    @case
    async def test_same_id_gives_the_same_answer(self, store: ScheduleIndex) -> None:
        for name, minutes, priority in (("d", 0, 0), ("c", 0, 1), ("b", -5, 0), ("a", 0, 0)):
            at = START + timedelta(minutes=minutes)
            await store.upsert(a_row(name, at=at, priority=priority))
        first = await store.claim_due(limit=3, claim_id="one")
        assert [each.name for each in first] == ["b", "c", "d"]
        assert [each.missed for each in first] == [5, 0, 0]
        assert await store.claim_due(limit=3, claim_id="one") == first
        assert [each.name for each in await store.claim_due(claim_id="two")] == ["a"]

    @case
    async def test_same_id_claims_nothing_more(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row())
        first = await store.claim_due(START_MS, claim_id="one")
        assert await store.claim_due(START_MS + HOUR_MS, claim_id="one") == first
        assert await next_fire(store, START_MS + MINUTE_MS) == START_MS + MINUTE_MS

    @case
    async def test_finished_rows_are_answered_again(self, store: ScheduleIndex) -> None:
        row = a_row(trigger=ONCE)
        await store.upsert(row)
        assert await store.claim_due(claim_id="one") == [as_claimed(row)]
        assert await store.claim_due(claim_id="one") == [as_claimed(row)]

    @case
    async def test_removed_rows_are_answered_again(self, store: ScheduleIndex) -> None:
        row = a_row()
        await store.upsert(row)
        first = await store.claim_due(claim_id="one")
        await store.remove(a_key())
        assert await store.claim_due(claim_id="one") == first == [as_claimed(row)]

    @case
    async def test_empty_answers_leave_the_id_free(self, store: ScheduleIndex) -> None:
        assert await store.claim_due(claim_id="one") == []
        await store.upsert(a_row())
        assert len(await store.claim_due(claim_id="one")) == 1

    @case
    async def test_asking_twice_at_once_claims_once(self, store: ScheduleIndex) -> None:
        for name in "abcd":
            await store.upsert(a_row(name))
        one, two = await asyncio.gather(
            store.claim_due(limit=2, claim_id="one"), store.claim_due(limit=2, claim_id="one")
        )
        assert one == two
        assert len(await store.claim_due()) == 2

    @case
    async def test_long_ids_are_refused(self, store: ScheduleIndex) -> None:
        await store.upsert(a_row())
        with pytest.raises(InvalidInput):
            await store.claim_due(claim_id="x" * 129)
        assert len(await store.claim_due(claim_id="x" * 128)) == 1
