"""The index of a full store: stored rows, lists and counts in addition to ScheduleIndex."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from duly.clock import SystemClock
from duly.errors import Conflict, InvalidInput
from duly.model.index import MAX_PAGE, Quarantined
from duly.model.index_rows import TRIGGER_VERSION
from duly.stores.port import Store
from duly.testing.conformance.index.quarantine import a_bad_row
from duly.testing.conformance.samples import (
    DAILY,
    HOUR_MS,
    HOURLY,
    MINUTE_MS,
    ONCE,
    START_MS,
    a_key,
    a_row,
    a_write,
    as_claimed,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, OpenStore, StoreConformance, case
from duly.triggers import cron
from duly.triggers.instants import from_ms, to_ms


class StoreIndexConformance(StoreConformance):
    """The suite for rows, quarantine and health, and the clock and ledger used by claims."""

    @case
    async def test_rows_are_listed_in_the_order_of_claims(self, store: Store) -> None:
        for name, minutes, priority in (("late", 2, 9), ("low", 1, -1), ("b", 1, 0), ("a", 1, 0)):
            at = START + timedelta(minutes=minutes)
            await store.upsert(a_row(name, at=at, priority=priority))
        assert [row.name for row in await store.list_rows()] == ["b", "a", "low", "late"]

    @case
    async def test_finished_rows_are_gone(self, store: Store) -> None:
        await store.upsert(a_row("once", trigger=ONCE))
        await store.upsert(a_row("counted", runs_left=2))
        await store.claim_due(START_MS)
        row = await only_row(store)
        assert (row.name, row.runs_left) == ("counted", 1)
        await store.claim_due(START_MS + MINUTE_MS)
        assert await store.list_rows() == []

    @case
    async def test_newer_trigger_versions_stay_as_they_are(self, store: Store) -> None:
        newer = a_row("newer", trigger_version=TRIGGER_VERSION + 1)
        await store.upsert(newer)
        assert await store.claim_due() == []
        assert await store.list_rows() == [newer]
        assert await store.list_quarantined() == []

    @case
    async def test_last_write_is_stored(self, store: Store) -> None:
        later = a_row(at=START + timedelta(minutes=2))
        await store.upsert(later)
        await store.upsert(a_row(priority=4))
        assert await only_row(store) == replace(later, priority=4, version=2)
        second = a_row(trigger=cron("30 * * * *"), at=START + timedelta(minutes=30))
        await store.upsert(second)
        assert await only_row(store) == replace(second, version=3)

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
    async def test_a_schedule_has_one_row(self, store: Store) -> None:
        row = a_row("a")
        await store.upsert(row)
        with pytest.raises((Conflict, InvalidInput)):
            await store.upsert(a_row("b", schedule_id=row.schedule_id))
        assert await only_row(store) == row

    @case
    async def test_advance_moves_one_row_in_place(self, store: Store) -> None:
        row = a_row(trigger=HOURLY, policies='{"grace_ms":5}', hand_over="http", priority=7)
        await store.upsert(row)
        await store.claim_due(START_MS)
        moved = await only_row(store)
        assert (moved.nominal_ms, moved.run_at_ms) == (START_MS + HOUR_MS, START_MS + HOUR_MS)
        assert moved.version == 2
        assert as_claimed(moved) == as_claimed(a_row(trigger=HOURLY, at=START + timedelta(hours=1)))
        assert (moved.policies, moved.hand_over, moved.priority) == (
            row.policies,
            row.hand_over,
            row.priority,
        )

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
    async def test_no_occurrence_is_taken_twice(self, store: Store) -> None:
        """A row set back to a time in the ledger advances without firing."""
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
    async def test_same_row_written_anew_is_tried_again(self, store: Store) -> None:
        """A repeated write releases a quarantined row, since a newer release may accept it."""
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

    @case
    async def test_own_clock_is_nearly_right(self, open_store: OpenStore) -> None:
        store = open_store(None)
        skew_ms = await store.now_ms() - to_ms(SystemClock().now())
        await store.close()
        assert abs(skew_ms) < HOUR_MS

    @case
    async def test_host_clock_decides_nothing(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_ms = to_ms(SystemClock().now())
        wrong = from_ms(real_ms + 24 * HOUR_MS)
        monkeypatch.setattr(SystemClock, "now", lambda _clock: wrong)
        store = open_store(None)
        if not store.capabilities.has_clock:
            await store.close()
            pytest.skip("capability has_clock is missing: the host's clock is the store's")
        await store.upsert(a_row("soon", at=from_ms(real_ms + 12 * HOUR_MS)))
        claimed = await store.claim_due()
        (written,) = await put(store, a_write())
        now_ms = await store.now_ms()
        await store.close()
        assert claimed == []
        for found_ms in (now_ms, written.schedule.created_at_ms):
            assert abs(found_ms - real_ms) < HOUR_MS

    @case
    async def test_closing_twice_is_fine(self, open_store: OpenStore) -> None:
        store = open_store(None)
        await store.close()
        await store.close()

    @case
    async def test_bad_row_is_kept_with_its_error(self, store: Store) -> None:
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
    async def test_bad_rows_are_listed_in_pages(self, store: Store) -> None:
        for number in range(200):
            await store.upsert(a_bad_row(f"bad-{number:03}"))
        await store.upsert(a_row("good"))
        assert [each.name for each in await store.claim_due(limit=10)] == ["good"]
        assert len(await store.list_quarantined(limit=500)) == 200
        assert len(await store.list_quarantined(limit=3)) == 3
