"""Misfires: the effect of each policy on times found later than their grace."""

from __future__ import annotations

from typing import Any

from duly.model.schedules import Misfire, Policies
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.planning.samples import FROM_TWO, jobs_of, ledger, plan
from duly.testing.conformance.samples import (
    MINUTE_MS,
    START_MS,
    a_definition,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

Shown = tuple[int, int, int, str, str | None]


async def minutely(store: Store, misfire: Misfire, **fields: Any) -> None:
    """Store a schedule of every minute from the second on, without grace."""
    policies = Policies(misfire=misfire, grace_ms=0, overlap="allow")
    await put(store, a_write(definition=a_definition(FROM_TWO, policies=policies, **fields)))


async def shown(store: Store) -> list[Shown]:
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


class MisfireCases(StoreConformance):
    """Cases for plan_occurrences() after an outage of an hour."""

    @case
    async def test_run_once_runs_the_latest(self, store: Store, clock: ManualClock) -> None:
        await minutely(store, Misfire())
        clock.advance(minutes=60, seconds=30)
        report = await plan(store)
        assert (report.rows, report.planned, report.missed) == (1, 1, 58)
        assert report.next_run_at_ms == START_MS + 61 * MINUTE_MS
        assert await shown(store) == [
            (2, 59, 58, "missed", "run_once"),
            (60, 60, 1, "planned", "run_once"),
        ]
        (job,) = await jobs_of(store)
        assert job.nominal_ms == job.run_at_ms == START_MS + 60 * MINUTE_MS
        assert [each.job_id for each in await ledger(store)] == [None, job.id]

    @case
    async def test_skip_runs_none(self, store: Store, clock: ManualClock) -> None:
        await minutely(store, Misfire("skip"))
        clock.advance(minutes=60, seconds=30)
        report = await plan(store)
        assert (report.planned, report.missed) == (0, 59)
        assert await shown(store) == [(2, 60, 59, "missed", "skip")]
        assert await jobs_of(store) == []
        assert (await only_row(store)).nominal_ms == START_MS + 61 * MINUTE_MS

    @case
    async def test_skip_runs_what_is_on_time(self, store: Store, clock: ManualClock) -> None:
        await minutely(store, Misfire("skip"))
        clock.advance(minutes=60)
        report = await plan(store)
        assert (report.planned, report.missed) == (1, 58)
        assert await shown(store) == [(2, 59, 58, "missed", "skip"), (60, 60, 1, "planned", None)]

    @case
    async def test_catch_up_runs_the_newest_one_by_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        await minutely(store, Misfire("catch_up", limit=5, per_minute=30))
        clock.advance(minutes=60, seconds=30)
        now_ms = clock.now_ms()
        report = await plan(store)
        assert (report.planned, report.missed) == (5, 54)
        assert await shown(store) == [
            (2, 55, 54, "missed", "catch_up"),
            *((minute, minute, 1, "planned", "catch_up") for minute in range(56, 61)),
        ]
        jobs = await jobs_of(store)
        assert len({job.id for job in jobs}) == 5
        assert [job.run_at_ms - now_ms for job in jobs] == [0, 2_000, 4_000, 6_000, 8_000]
        assert [job.state.value for job in jobs] == ["queued", *["scheduled"] * 4]
        again = await plan(store)
        assert (again.rows, len(await jobs_of(store))) == (0, 5)

    @case
    async def test_swallowed_times_stay_swallowed(self, store: Store, clock: ManualClock) -> None:
        """A row set back to swallowed times does not plan them again."""
        await minutely(store, Misfire("skip"))
        before = await only_row(store)
        clock.advance(minutes=60, seconds=30)
        await plan(store)
        rows = await ledger(store)
        await store.remove(a_write().key)
        await store.upsert(before)
        report = await plan(store)
        assert (report.rows, report.missed) == (1, 0)
        assert await ledger(store) == rows

    @case
    async def test_missed_times_count_as_no_run(self, store: Store, clock: ManualClock) -> None:
        await minutely(store, Misfire(), max_runs=2)
        clock.advance(minutes=60, seconds=30)
        assert (await plan(store)).planned == 1
        assert (await only_row(store)).runs_left == 1
        clock.advance(minutes=1)
        report = await plan(store)
        assert (report.planned, report.finished) == (1, 1)
        assert await store.list_rows() == []
