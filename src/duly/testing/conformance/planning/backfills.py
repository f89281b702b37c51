"""Backfills: past times that did not run are run once each."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.jobs import JobState
from duly.model.plans import LEDGER_MS, MAX_PLAN, Backfill, BackfillReport
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.samples import (
    FROM_TWO,
    jobs_of,
    ledger,
    line,
    next_hour,
    plan,
    put_hourly,
    states,
)
from duly.testing.conformance.samples import (
    HOUR_MS,
    HOURLY,
    MINUTE_MS,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

ID = ScheduleId("id-a")
Part = tuple[int, int, int, str, str | None]


def minute(number: int) -> int:
    """Return the instant `number` minutes after the start."""
    return START_MS + number * MINUTE_MS


async def fill(store: Store, from_ms: int, to_ms: int, limit: int = 1_000) -> BackfillReport:
    """Run one step of a backfill of an existing schedule; return its report."""
    report = await store.backfill(Backfill(ID, from_ms, to_ms, limit))
    assert report is not None
    return report


async def missed_minutes(store: Store, clock: ManualClock) -> None:
    """Make the ledger have one row for minutes 2 to 20, all missed."""
    policies = Policies(misfire=Misfire("skip"), overlap="allow", grace_ms=0)
    await put(store, a_write(definition=a_definition(FROM_TWO, policies=policies)))
    clock.advance(minutes=20, seconds=30)
    assert (await plan(store)).missed == 19


async def parts(store: Store) -> list[Part]:
    """Return first and last minute, count, state and reason of each occurrence."""
    return [
        (
            (each.nominal_ms - START_MS) // MINUTE_MS,
            (each.until_ms - START_MS) // MINUTE_MS,
            each.count,
            each.state.value,
            each.reason,
        )
        for each in await ledger(store)
    ]


class BackfillCases(StoreConformance):
    """Cases for backfill()."""

    @case
    async def test_times_without_a_row_are_planned(self, store: Store, clock: ManualClock) -> None:
        """Times without a ledger row are planned, even before the schedule was created."""
        await put_hourly(store, "allow", priority=3)
        clock.advance(minutes=10)
        now_ms = START_MS + 10 * MINUTE_MS
        report = await fill(store, START_MS - 3 * HOUR_MS, START_MS)
        assert report == BackfillReport(planned=3, left_alone=0, next_from_ms=None)
        rows, jobs = await ledger(store), await jobs_of(store)
        times = [START_MS - hours * HOUR_MS for hours in (3, 2, 1)]
        assert [each.nominal_ms for each in rows] == [job.nominal_ms for job in jobs] == times
        assert {(each.state.value, each.reason, each.run_at_ms) for each in rows} == {
            ("planned", "backfill", now_ms)
        }
        assert [each.job_id for each in rows] == [job.id for job in jobs]
        assert {(job.state, job.turn, job.run_at_ms) for job in jobs} == {
            (JobState.QUEUED, None, now_ms)
        }
        assert (await only_row(store)).nominal_ms == START_MS + HOUR_MS

    @case
    async def test_backfilled_jobs_run_one_after_another(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store)
        clock.advance(minutes=10)
        await fill(store, START_MS - 3 * HOUR_MS, START_MS)
        assert await line(store) == [
            ("queued", False),
            ("scheduled", True),
            ("scheduled", True),
        ]
        assert {job.turn for job in await jobs_of(store)} == {"waits"}
        for number in (3, 2, 1):
            job = await claim_one(store)
            assert job.nominal_ms == START_MS - number * HOUR_MS
            await end(store, job, Succeeded())
        assert await states(store) == ["succeeded"] * 3

    @case
    async def test_backfill_stands_behind_what_runs(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store)
        await next_hour(store, clock)
        clock.advance(minutes=10)
        await fill(store, START_MS - HOUR_MS, START_MS)
        assert await line(store) == [("scheduled", True), ("queued", False)]

    @case
    async def test_bounds_are_from_inclusive_to_exclusive(
        self, store: Store, clock: ManualClock
    ) -> None:
        await missed_minutes(store, clock)
        assert (await fill(store, minute(5), minute(7))).planned == 2
        assert await parts(store) == [
            (2, 4, 3, "missed", "skip"),
            (5, 5, 1, "planned", "backfill"),
            (6, 6, 1, "planned", "backfill"),
            (7, 20, 14, "missed", "skip"),
        ]
        left, *_, right = await ledger(store)
        assert (left.run_at_ms, right.run_at_ms) == (minute(2), minute(7))

    @case
    async def test_begin_of_a_range_is_taken(self, store: Store, clock: ManualClock) -> None:
        await missed_minutes(store, clock)
        assert (await fill(store, minute(1), minute(4))).planned == 2
        assert await parts(store) == [
            (2, 2, 1, "planned", "backfill"),
            (3, 3, 1, "planned", "backfill"),
            (4, 20, 17, "missed", "skip"),
        ]

    @case
    async def test_end_of_a_range_is_taken(self, store: Store, clock: ManualClock) -> None:
        await missed_minutes(store, clock)
        assert (await fill(store, minute(19), minute(20) + 1)).planned == 2
        assert await parts(store) == [
            (2, 18, 17, "missed", "skip"),
            (19, 19, 1, "planned", "backfill"),
            (20, 20, 1, "planned", "backfill"),
        ]

    @case
    async def test_whole_range_is_taken(self, store: Store, clock: ManualClock) -> None:
        await missed_minutes(store, clock)
        assert (await fill(store, START_MS, minute(20) + 1)).planned == 19
        assert await states(store) == ["planned"] * 19

    @case
    async def test_single_times_remain(self, store: Store, clock: ManualClock) -> None:
        """A backfill that leaves a single missed time keeps it, and it can be backfilled later."""
        await missed_minutes(store, clock)
        await fill(store, minute(3), minute(20))
        assert (await parts(store))[0] == (2, 2, 1, "missed", "skip")
        assert (await parts(store))[-1] == (20, 20, 1, "missed", "skip")
        await fill(store, minute(2), minute(20) + 1)
        assert await states(store) == ["planned"] * 19

    @case
    async def test_repeated_backfill_takes_nothing_twice(
        self, store: Store, clock: ManualClock
    ) -> None:
        await missed_minutes(store, clock)
        request = (minute(5), minute(9))
        assert await fill(store, *request) == BackfillReport(4, 0, None)
        before = (await ledger(store), await jobs_of(store))
        assert await fill(store, *request) == BackfillReport(0, 4, None)
        assert (await ledger(store), await jobs_of(store)) == before

    @case
    async def test_what_ran_or_will_run_is_left_alone(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store, "allow")
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        await next_hour(store, clock)
        await claim_one(store)
        await next_hour(store, clock)
        report = await fill(store, START_MS + 1, START_MS + 3 * HOUR_MS + 1)
        assert report == BackfillReport(planned=0, left_alone=3, next_from_ms=None)
        assert await states(store) == ["succeeded", "fired", "planned"]

    @case
    async def test_skipped_and_withdrawn_times_are_taken_up(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store)
        await next_hour(store, clock)
        await next_hour(store, clock)
        assert await states(store) == ["planned", "skipped"]
        await put(store, a_write(definition=a_definition(enabled=False)))
        assert await states(store) == ["withdrawn", "skipped"]
        old = [job.id for job in await jobs_of(store)]
        report = await fill(store, START_MS + HOUR_MS, START_MS + 2 * HOUR_MS + 1)
        assert report == BackfillReport(planned=2, left_alone=0, next_from_ms=None)
        rows = await ledger(store)
        assert [each.state.value for each in rows] == ["planned", "planned"]
        assert [each.ended_at_ms for each in rows] == [None, None]
        assert not {each.job_id for each in rows} & {None, *old}

    @case
    async def test_planner_leaves_backfilled_times_alone(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The planner skips times already covered by a backfill."""
        policies = Policies(misfire=Misfire("skip"), overlap="allow", grace_ms=0)
        await put(store, a_write(definition=a_definition(FROM_TWO, policies=policies)))
        clock.advance(minutes=20)
        await fill(store, minute(10), minute(12))
        await fill(store, minute(20), minute(20) + 1)
        report = await plan(store)
        assert (report.planned, report.missed) == (0, 16)
        assert await parts(store) == [
            (2, 9, 8, "missed", "skip"),
            (10, 10, 1, "planned", "backfill"),
            (11, 11, 1, "planned", "backfill"),
            (12, 19, 8, "missed", "skip"),
            (20, 20, 1, "planned", "backfill"),
        ]

    @case
    async def test_backfill_goes_in_steps(self, store: Store, clock: ManualClock) -> None:
        await missed_minutes(store, clock)
        first = await fill(store, START_MS, minute(10), limit=3)
        assert first == BackfillReport(3, 0, minute(4) + 1)
        assert first.next_from_ms is not None
        second = await fill(store, first.next_from_ms, minute(10), limit=3)
        assert second == BackfillReport(3, 0, minute(7) + 1)
        assert second.next_from_ms is not None
        last = await fill(store, second.next_from_ms, minute(10), limit=3)
        assert last == BackfillReport(2, 0, None)
        assert len(await jobs_of(store)) == 8

    @case
    async def test_step_that_takes_all_is_the_last(self, store: Store, clock: ManualClock) -> None:
        await missed_minutes(store, clock)
        assert await fill(store, minute(2), minute(5), limit=3) == BackfillReport(3, 0, None)

    @case
    async def test_range_without_a_time_is_done(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store)
        clock.advance(minutes=30)
        report = await fill(store, START_MS + 1, START_MS + 29 * MINUTE_MS)
        assert report == BackfillReport(0, 0, None)

    @case
    async def test_senseless_backfills_are_refused(self, store: Store) -> None:
        await put_hourly(store)
        hour = (START_MS - HOUR_MS, START_MS)
        for limit in (-1, 0, MAX_PLAN + 1):
            with pytest.raises(InvalidInput, match="limit"):
                await fill(store, *hour, limit=limit)
        ranges = [
            (START_MS, START_MS),
            (START_MS - LEDGER_MS - 1, START_MS),
            (START_MS, START_MS + 2),
        ]
        for from_ms, to_ms in ranges:
            with pytest.raises(InvalidInput):
                await fill(store, from_ms, to_ms)
        assert await ledger(store) == []
        assert (await fill(store, START_MS - LEDGER_MS, START_MS + 1, limit=1)).planned == 1

    @case
    async def test_nobody_has_nothing_to_backfill(self, store: Store) -> None:
        assert await store.backfill(Backfill(ScheduleId("nobody"), START_MS - 1, START_MS)) is None

    @case
    async def test_backfill_counts_as_no_run(self, store: Store, clock: ManualClock) -> None:
        definition = a_definition(HOURLY, policies=Policies(overlap="allow"), max_runs=3)
        await put(store, a_write(definition=definition))
        clock.advance(minutes=10)
        await fill(store, START_MS - 5 * HOUR_MS, START_MS)
        assert (await only_row(store)).runs_left == 3
        await store.remove(a_key())
        await store.reconcile()
        assert (await only_row(store)).runs_left == 3

    @case
    async def test_paused_schedules_are_backfilled(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(enabled=False)))
        clock.advance(hours=2)
        report = await fill(store, START_MS + HOUR_MS, START_MS + 2 * HOUR_MS + 1)
        assert report.planned == 2
        assert await store.list_rows() == []

    @case
    async def test_quarantined_times_are_backfilled_when_they_can_be(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A quarantined time can be backfilled once its definition is valid."""
        endless = Policies(timeout_ms=300 * 24 * HOUR_MS)
        await put(store, a_write(definition=a_definition(policies=endless)))
        await next_hour(store, clock)
        hour = (START_MS + HOUR_MS, START_MS + HOUR_MS + 1)
        with pytest.raises(InvalidInput):
            await fill(store, *hour)
        assert await states(store) == ["quarantined"]
        # With another timing: with the same one, the write would plan it itself.
        await put(store, a_write(definition=a_definition(max_runs=9)))
        assert await fill(store, *hour) == BackfillReport(1, 0, None)
        assert await states(store) == ["planned"]
        assert await fill(store, *hour) == BackfillReport(0, 1, None)
