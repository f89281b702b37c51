"""New zone rules: rows with times by older rules are moved, recorded and counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from duly.errors import InvalidInput
from duly.model.index_rows import IndexRow
from duly.model.schedules import Policies, ScheduleId
from duly.model.upkeep import Recomputed, ZoneMove
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.planning.samples import ledger, plan
from duly.testing.conformance.samples import (
    DAILY,
    HOUR_MS,
    MINUTE_MS,
    START_MS,
    a_definition,
    a_key,
    a_row,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, every, once, weekly
from duly.triggers.instants import from_ms, to_ms

STEPS = 200
"""Maximum number of steps; more than any case needs."""
TUESDAY_MS = START_MS + 20 * HOUR_MS
"""09:00 in Berlin on the day after START."""


async def set_row(store: Store, row: IndexRow, by_ms: int) -> None:
    """Shift a row by `by_ms`, as if it had been computed by older rules."""
    await store.remove(a_key(row.name))
    await store.upsert(
        replace(row, nominal_ms=row.nominal_ms + by_ms, run_at_ms=row.run_at_ms + by_ms)
    )


async def recompute(store: Store, rules: str | None = "2026a", limit: int = 1_000) -> Recomputed:
    """Run all recompute steps and return the sum."""
    total = Recomputed()
    for _ in range(STEPS):
        total += await store.recompute_zones(rules, limit=limit, cursor=total.cursor)
        if total.cursor is None:
            return total
    raise AssertionError(f"not finished after {STEPS} steps: {total}")


class RecomputeCases(StoreConformance):
    """Cases for recompute_zones() and zone_rules()."""

    @case
    async def test_wrong_times_are_moved(self, store: Store) -> None:
        for name, by_ms in (("early", -HOUR_MS), ("late", HOUR_MS)):
            (written,) = await put(store, a_write(name, a_definition(DAILY)))
            assert written.row is not None
            assert written.row.nominal_ms == TUESDAY_MS
            await set_row(store, written.row, by_ms)
        found = await recompute(store)
        moves = {
            ZoneMove(ScheduleId("id-early"), "Europe/Berlin", TUESDAY_MS - HOUR_MS, TUESDAY_MS),
            ZoneMove(ScheduleId("id-late"), "Europe/Berlin", TUESDAY_MS + HOUR_MS, TUESDAY_MS),
        }
        assert (found.checked, found.moved, set(found.examples)) == (2, 2, moves)
        assert [row.run_at_ms for row in await store.list_rows()] == [TUESDAY_MS] * 2
        fact = (await store.schedule_events(ScheduleId("id-late")))[-1]
        detail = {"tz": {"old_ms": TUESDAY_MS + HOUR_MS, "new_ms": TUESDAY_MS}}
        assert (fact.kind, fact.by, fact.detail) == ("changed", "system", detail)
        assert await recompute(store) == Recomputed(checked=2)

    @case
    async def test_right_times_are_left_alone(self, store: Store, clock: ManualClock) -> None:
        """Correct times stay: also with a spread, planned ahead, withdrawn, or before an end."""
        triggers = [
            DAILY,
            cron("30 2 * * *", tz="Europe/Berlin", spread=7200),
            cron("H * * * *", tz="America/New_York"),
            weekly({"mon": "13:30"}, tz="Europe/Berlin"),
            cron("0 9 * * *", tz="Asia/Tokyo", end_at=START + timedelta(days=3)),
        ]
        for number, trigger in enumerate(triggers):
            await put(store, a_write(f"{number}", a_definition(trigger)))
        clock.advance(minutes=29, seconds=30)
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        await put(store, a_write("3", a_definition(triggers[3], input={"new": True})))
        rows = await store.list_rows()
        assert (await recompute(store)).moved == 0
        assert await store.list_rows() == rows

    @case
    async def test_due_times_are_left_alone(self, store: Store, clock: ManualClock) -> None:
        """A due time is not moved."""
        (written,) = await put(store, a_write(definition=a_definition(DAILY)))
        assert written.row is not None
        await set_row(store, written.row, -10 * HOUR_MS)
        row = await only_row(store)
        clock.set(START + timedelta(hours=11))
        assert await recompute(store) == Recomputed()
        assert await only_row(store) == row

    @case
    async def test_spread_times_wait_for_their_run_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A time is not moved if its nominal time has come but its run time has not."""
        trigger = cron("30 13 * * *", tz="Europe/Berlin", spread=7200)
        (written,) = await put(store, a_write(definition=a_definition(trigger)))
        assert written.row is not None
        clock.advance(milliseconds=written.row.run_at_ms - START_MS - 1)
        assert clock.now() > from_ms(written.row.nominal_ms)
        assert await recompute(store) == Recomputed(checked=1)
        assert await only_row(store) == written.row

    @case
    async def test_moves_go_forward_only(self, store: Store, clock: ManualClock) -> None:
        """A row whose correct time has passed moves to the next correct time, not into the past."""
        (written,) = await put(store, a_write(definition=a_definition(DAILY)))
        assert written.row is not None
        clock.advance(hours=20, minutes=30)
        await set_row(store, written.row, HOUR_MS)
        assert (await recompute(store)).moved == 1
        assert (await only_row(store)).nominal_ms == TUESDAY_MS + 24 * HOUR_MS

    @case
    async def test_what_is_planned_is_not_planned_twice(
        self, store: Store, clock: ManualClock
    ) -> None:
        (written,) = await put(store, a_write(definition=a_definition(DAILY)))
        assert written.row is not None
        clock.advance(hours=19, minutes=59, seconds=30)
        assert (await plan(store, look_ahead_ms=MINUTE_MS)).planned == 1
        await set_row(store, written.row, HOUR_MS)
        assert (await recompute(store)).moved == 1
        assert (await only_row(store)).nominal_ms == TUESDAY_MS + 24 * HOUR_MS
        clock.advance(hours=2)
        await plan(store)
        assert len(await ledger(store)) == 1

    @case
    async def test_schedule_without_further_times_finishes(self, store: Store) -> None:
        trigger = cron("0 9 * * *", tz="Europe/Berlin", end_at=START)
        (written,) = await put(store, a_write(definition=a_definition(DAILY)))
        assert written.row is not None
        ended = a_row("a", trigger, START + timedelta(hours=3))
        await store.upsert(replace(ended, version=written.row.version))
        assert (await recompute(store)).examples[0].new_ms is None
        assert await store.list_rows() == []
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "finished"

    @case
    async def test_a_local_once_moves_with_its_zone(self, store: Store) -> None:
        """A local once moves even to an instant that has passed: it is late, not lost."""
        for name, at, by_ms in (
            ("later", "2026-03-04T09:00", HOUR_MS),
            ("passed", "2026-03-02T12:30", 2 * HOUR_MS),
        ):
            trigger = once(at, tz="Europe/Berlin")
            policies = Policies(grace_ms=HOUR_MS)
            definition = a_definition(trigger, policies=policies, hand_over="http")
            (written,) = await put(store, a_write(name, definition))
            assert written.row is not None
            await set_row(store, written.row, by_ms)
        assert (await recompute(store)).moved == 2
        rows = {row.name: row.nominal_ms for row in await store.list_rows()}
        assert rows == {
            "later": to_ms(datetime(2026, 3, 4, 8, tzinfo=UTC)),
            "passed": START_MS - HOUR_MS // 2,
        }
        assert [each.name for each in await store.claim_due()] == ["passed"]

    @case
    async def test_only_zoned_rows_of_schedules_move(self, store: Store) -> None:
        """Rows in UTC, without a stored schedule, or of a newer trigger version are not moved."""
        for name, trigger in (
            ("utc", cron("0 9 * * *")),
            ("every", every(hours=6)),
            ("once", once(START + timedelta(days=1))),
        ):
            (written,) = await put(store, a_write(name, a_definition(trigger)))
            assert written.row is not None
            await set_row(store, written.row, HOUR_MS)
        await store.upsert(a_row("foreign", DAILY, START + timedelta(hours=5)))
        newer = a_row("newer", DAILY, START + timedelta(hours=5), trigger_version=99)
        await put(store, a_write("newer", a_definition(DAILY)))
        await store.remove(a_key("newer"))
        await store.upsert(newer)
        rows = await store.list_rows()
        assert (await recompute(store)).moved == 0
        assert await store.list_rows() == rows

    @case
    async def test_pages_reach_everything(self, store: Store) -> None:
        for number in range(5):
            (written,) = await put(store, a_write(f"{number}", a_definition(DAILY)))
            assert written.row is not None
            await set_row(store, written.row, HOUR_MS)
        step = await store.recompute_zones("2026a", limit=2)
        assert (step.moved, step.cursor is None) == (2, False)
        assert await store.zone_rules() is None
        assert (await recompute(store, limit=2)).moved == 3
        assert await store.zone_rules() == "2026a"

    @case
    async def test_rules_are_remembered_and_never_older(self, store: Store) -> None:
        assert await store.zone_rules() is None
        for rules, remembered in (("2026b", "2026b"), ("2026a", "2026b"), (None, "2026b")):
            await recompute(store, rules)
            assert await store.zone_rules() == remembered
        await recompute(store, "2026aa")
        assert await store.zone_rules() == "2026aa"

    @case
    async def test_senseless_pages_are_refused(self, store: Store) -> None:
        for limit in (0, 1_001):
            with pytest.raises(InvalidInput, match="limit"):
                await store.recompute_zones("2026a", limit=limit)
        for cursor in ("", "x", "x:1"):
            with pytest.raises(InvalidInput, match="cursor"):
                await store.recompute_zones("2026a", cursor=cursor)
