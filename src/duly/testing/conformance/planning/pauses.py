"""Pauses: the times they swallow are recorded when they end."""

from __future__ import annotations

from duly.model.plans import Backfill
from duly.model.schedules import ScheduleId
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.samples import (
    ledger,
    next_hour,
    only_occurrence,
    plan,
    states,
)
from duly.testing.conformance.samples import (
    HOUR_MS,
    HOURLY,
    MINUTE_MS,
    MINUTELY,
    START_MS,
    a_definition,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import Trigger, cron, every

ID = ScheduleId("id-a")
Shown = tuple[float, float, int, str, str | None]


async def pause(store: Store, trigger: Trigger = HOURLY) -> None:
    """Pause the schedule, with a trigger."""
    await put(store, a_write(definition=a_definition(trigger, enabled=False)))


async def shown_hours(store: Store) -> list[Shown]:
    """Return first and last hour, count, state and reason of each occurrence."""
    return [
        (
            (each.nominal_ms - START_MS) / HOUR_MS,
            (each.until_ms - START_MS) / HOUR_MS,
            each.count,
            each.state.value,
            each.reason,
        )
        for each in await ledger(store)
    ]


class PauseCases(StoreConformance):
    """Cases for put_schedules() that ends a pause."""

    @case
    async def test_resume_writes_down_what_the_pause_swallowed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        clock.advance(minutes=30)
        await pause(store)
        clock.advance(hours=5)
        assert await ledger(store) == []
        await put(store, a_write())
        swallowed = await only_occurrence(store)
        assert await shown_hours(store) == [(1, 5, 5, "missed", "paused")]
        assert (swallowed.run_at_ms, swallowed.job_id) == (START_MS + HOUR_MS, None)
        assert (swallowed.fired_at_ms, swallowed.ended_at_ms) == (None, None)
        assert (await only_row(store)).nominal_ms == START_MS + 6 * HOUR_MS

    @case
    async def test_short_pause_swallows_nothing(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        await pause(store)
        clock.advance(minutes=59)
        await put(store, a_write())
        assert [each.state.value for each in await ledger(store)] == ["planned"]

    @case
    async def test_time_of_the_resume_is_swallowed(self, store: Store, clock: ManualClock) -> None:
        """A time at the instant of the resume is swallowed by the pause."""
        await put(store, a_write())
        await pause(store)
        clock.advance(hours=1)
        await put(store, a_write())
        assert await shown_hours(store) == [(1, 1, 1, "missed", "paused")]
        assert (await only_row(store)).nominal_ms == START_MS + 2 * HOUR_MS

    @case
    async def test_time_of_the_pause_is_not_swallowed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        await next_hour(store, clock)
        await pause(store)
        clock.advance(hours=1)
        await put(store, a_write())
        assert await shown_hours(store) == [
            (1, 1, 1, "withdrawn", "withdrawn: schedule paused"),
            (2, 2, 1, "missed", "paused"),
        ]

    @case
    async def test_created_paused_swallows_from_its_creation(
        self, store: Store, clock: ManualClock
    ) -> None:
        await pause(store)
        clock.advance(hours=3, minutes=30)
        await put(store, a_write())
        assert await shown_hours(store) == [(1, 3, 3, "missed", "paused")]

    @case
    async def test_old_rule_says_what_was_swallowed(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        await pause(store)
        clock.advance(hours=2, minutes=15)
        half_past = a_definition(cron("30 * * * *"))
        await put(store, a_write(definition=half_past))
        assert await shown_hours(store) == [(1, 2, 2, "missed", "paused")]
        assert (await only_row(store)).nominal_ms == START_MS + 2 * HOUR_MS + 30 * MINUTE_MS

    @case
    async def test_every_rule_of_the_pause_has_its_own_times(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Each trigger within a pause has times only while it was in force."""
        await put(store, a_write())
        clock.advance(minutes=30)
        await pause(store)
        clock.advance(hours=2)
        await pause(store, cron("15 */3 * * *"))
        clock.advance(hours=1)
        off = a_definition(cron("15 */3 * * *"), enabled=False, description="of the same rule")
        await put(store, a_write(definition=off))
        clock.advance(hours=3)
        await put(store, a_write(definition=a_definition(cron("15 */3 * * *"))))
        assert await shown_hours(store) == [
            (1, 2, 2, "missed", "paused"),
            (3.25, 6.25, 2, "missed", "paused"),
        ]

    @case
    async def test_pause_of_what_had_no_runs_left_swallows_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        used_up = a_definition(max_runs=1)
        await put(store, a_write(definition=used_up))
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        await put(store, a_write(definition=a_definition(max_runs=1, enabled=False)))
        clock.advance(hours=24)
        await put(store, a_write(definition=used_up))
        assert await states(store) == ["succeeded"]

    @case
    async def test_withdrawn_times_of_the_pause_are_swallowed(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Withdrawn times within the pause become missed; later ones stay withdrawn."""
        await put(store, a_write())
        await plan(store, look_ahead_ms=3 * HOUR_MS)
        await pause(store)
        assert await states(store) == ["withdrawn"] * 3
        clock.advance(hours=2, minutes=30)
        await put(store, a_write())
        assert await shown_hours(store) == [
            (1, 2, 2, "missed", "paused"),
            (3, 3, 1, "withdrawn", "withdrawn: schedule paused"),
        ]
        assert (await next_hour(store, clock)).planned == 1
        assert (await states(store)) == ["missed", "planned"]

    @case
    async def test_backfilled_times_of_the_pause_are_not_swallowed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        await pause(store)
        clock.advance(hours=4, minutes=30)
        at_ms = START_MS + 2 * HOUR_MS
        assert await store.backfill(Backfill(ID, at_ms, at_ms + 1)) is not None
        await put(store, a_write())
        assert await shown_hours(store) == [
            (1, 1, 1, "missed", "paused"),
            (2, 2, 1, "planned", "backfill"),
            (3, 4, 2, "missed", "paused"),
        ]

    @case
    async def test_extra_run_hides_no_swallowed_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        await pause(store)
        clock.advance(hours=2, minutes=30)
        assert await store.run_now(ID, "one") is not None
        clock.advance(hours=2)
        await put(store, a_write())
        assert await shown_hours(store) == [
            (1, 2, 2, "missed", "paused"),
            (2.5, 2.5, 1, "planned", "run_now"),
            (3, 4, 2, "missed", "paused"),
        ]

    @case
    async def test_two_pauses_are_two_rows(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        for _ in range(2):
            await pause(store)
            clock.advance(hours=2)
            await put(store, a_write())
        assert await shown_hours(store) == [
            (1, 2, 2, "missed", "paused"),
            (3, 4, 2, "missed", "paused"),
        ]

    @case
    async def test_edits_during_a_pause_end_nothing(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        await pause(store)
        clock.advance(hours=2, minutes=15)
        await pause(store, cron("30 * * * *"))
        assert await ledger(store) == []
        clock.advance(hours=1)
        await put(store, a_write(definition=a_definition(cron("30 * * * *"))))
        assert await shown_hours(store) == [
            (1, 2, 2, "missed", "paused"),
            (2.5, 2.5, 1, "missed", "paused"),
        ]

    @case
    async def test_long_pause_is_counted(self, store: Store, clock: ManualClock) -> None:
        trigger = every(minutes=1, start_at=None)
        key = a_write().key
        await put(store, a_write(key=key, definition=a_definition(trigger, enabled=False)))
        clock.advance(days=30, seconds=30)
        await put(store, a_write(definition=a_definition(trigger)))
        swallowed = (await ledger(store))[0]
        assert (swallowed.count, swallowed.nominal_ms) == (30 * 24 * 60, START_MS + MINUTE_MS)
        assert swallowed.until_ms == START_MS + 30 * 24 * HOUR_MS

    @case
    async def test_run_time_decides_what_a_pause_swallows(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A time belongs to the pause if its run time lies within it."""
        trigger = cron("0 * * * *", spread=3_000)
        (written,) = await put(store, a_write(definition=a_definition(trigger)))
        assert written.row is not None
        run_at_ms, offset_ms = written.row.run_at_ms, written.row.run_at_ms - START_MS
        clock.advance(milliseconds=offset_ms // 2)
        await pause(store, trigger)
        clock.advance(hours=2)
        (resumed,) = await put(store, a_write(definition=a_definition(trigger)))
        assert await shown_hours(store) == [(0, 1, 2, "missed", "paused")]
        assert (await only_occurrence(store)).run_at_ms == run_at_ms
        assert resumed.row is not None
        assert resumed.row.nominal_ms == START_MS + 2 * HOUR_MS

    @case
    async def test_outside_schedulers_pauses_are_their_own(
        self, store: Store, clock: ManualClock
    ) -> None:
        external = a_definition(MINUTELY, hand_over="external")
        await put(store, a_write(definition=external))
        await put(
            store,
            a_write(definition=a_definition(MINUTELY, hand_over="external", enabled=False)),
        )
        clock.advance(hours=1)
        await put(store, a_write(definition=external))
        assert await ledger(store) == []

    @case
    async def test_times_that_waited_for_a_planner_are_withdrawn_by_a_pause(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A pause withdraws due times that were not planned yet, so the ledger has them."""
        await put(store, a_write())
        clock.advance(hours=1, seconds=5)
        await pause(store)
        shown = [(1, 1, 1, "withdrawn", "withdrawn: schedule paused")]
        assert await shown_hours(store) == shown

    @case
    async def test_pause_keeps_the_count_of_runs(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(max_runs=3)))
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        await put(store, a_write(definition=a_definition(max_runs=3, enabled=False)))
        clock.advance(hours=5)
        await put(store, a_write(definition=a_definition(max_runs=3)))
        assert (await only_row(store)).runs_left == 2

    @case
    async def test_times_of_an_earlier_rule_stay_in_the_ledger(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Times withdrawn by a change of the trigger stay withdrawn after a later pause."""
        half_past = cron("30 * * * *")
        await put(store, a_write(definition=a_definition(half_past)))
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        await put(store, a_write())
        await pause(store)
        clock.advance(hours=2, minutes=30)
        await put(store, a_write())
        half_hours = [row[3] for row in await shown_hours(store) if row[0] % 1 == 0.5]
        assert half_hours == ["withdrawn", "withdrawn"]
        hours = [START_MS + hour * HOUR_MS for hour in (1, 2)]
        rows = await ledger(store)
        assert [sum(row.covers(ms) for row in rows) for ms in hours] == [1, 1]
