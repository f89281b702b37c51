"""Zones: rows advance on the schedule's local clock, also across clock changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from duly.stores.port import ScheduleIndex
from duly.testing.conformance.index.claims import next_fire
from duly.testing.conformance.samples import a_row
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import Trigger, cron, weekly
from duly.triggers.instants import from_ms, to_ms


def utc(text: str) -> datetime:
    """Return an instant in 2026 from `MM-DD HH:MM`."""
    return datetime.fromisoformat(f"2026-{text}").replace(tzinfo=UTC)


class ZoneCases(StoreConformance):
    """Cases for advances by trigger and zone; expected times were worked out by hand."""

    async def follow(self, store: ScheduleIndex, trigger: Trigger, times: Sequence[str]) -> None:
        """Check that the row fires at exactly these times."""
        await store.upsert(a_row(trigger=trigger, at=utc(times[0])))
        for now in times:
            assert from_ms(await next_fire(store, to_ms(utc(now)))) == utc(now)

    @case
    async def test_zone_is_utc_unless_named(self, store: ScheduleIndex) -> None:
        times = ["03-28 09:00", "03-29 09:00", "03-30 09:00"]
        await self.follow(store, cron("0 9 * * *"), times)

    @case
    async def test_wall_time_is_kept_in_spring(self, store: ScheduleIndex) -> None:
        times = ["03-28 08:00", "03-29 07:00", "03-30 07:00"]
        await self.follow(store, cron("0 9 * * *", tz="Europe/Berlin"), times)

    @case
    async def test_wall_time_is_kept_in_autumn(self, store: ScheduleIndex) -> None:
        times = ["10-24 07:00", "10-25 08:00", "10-26 08:00"]
        await self.follow(store, cron("0 9 * * *", tz="Europe/Berlin"), times)

    @case
    async def test_time_in_the_gap_fires_after_it(self, store: ScheduleIndex) -> None:
        """02:30 does not exist on 29 March, so it fires at the next valid instant, 03:00."""
        times = ["03-28 01:30", "03-29 01:00", "03-30 00:30"]
        await self.follow(store, cron("30 2 * * *", tz="Europe/Berlin"), times)

    @case
    async def test_time_in_the_gap_may_be_skipped(self, store: ScheduleIndex) -> None:
        times = ["03-28 01:30", "03-30 00:30"]
        await self.follow(store, cron("30 2 * * *", tz="Europe/Berlin", gap="skip"), times)

    @case
    async def test_time_in_the_fold_fires_once(self, store: ScheduleIndex) -> None:
        """02:30 exists twice on 25 October, at 00:30 and 01:30 UTC; only the first fires."""
        times = ["10-24 00:30", "10-25 00:30", "10-26 01:30"]
        await self.follow(store, cron("30 2 * * *", tz="Europe/Berlin"), times)

    @case
    async def test_time_in_the_fold_may_fire_twice(self, store: ScheduleIndex) -> None:
        times = ["10-24 00:30", "10-25 00:30", "10-25 01:30", "10-26 01:30"]
        await self.follow(store, cron("30 2 * * *", tz="Europe/Berlin", fold="both"), times)

    @case
    async def test_every_hour_fires_at_every_real_hour(self, store: ScheduleIndex) -> None:
        spring = ["03-29 00:00", "03-29 01:00", "03-29 02:00"]
        await self.follow(store, cron("0 * * * *", tz="Europe/Berlin"), spring)

    @case
    async def test_every_hour_fires_in_both_folds(self, store: ScheduleIndex) -> None:
        autumn = ["10-25 00:00", "10-25 01:00", "10-25 02:00"]
        await self.follow(store, cron("0 * * * *", tz="Europe/Berlin"), autumn)

    @case
    async def test_weeks_have_their_days(self, store: ScheduleIndex) -> None:
        trigger = weekly({"tue": "09:00", "thu": ["09:00", "17:30"]}, tz="America/New_York")
        times = ["03-05 14:00", "03-05 22:30", "03-10 13:00", "03-12 13:00"]
        await self.follow(store, trigger, times)
