"""Rows without a next time: finished, or quarantined because they cannot be evaluated."""

from __future__ import annotations

from dataclasses import replace

from duly.model.index import Quarantined
from duly.model.plans import NO_DEFINITION, PlanReport
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import Policies
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.index.quarantine import BAD
from duly.testing.conformance.planning.samples import jobs_of, ledger, only_occurrence, plan, states
from duly.testing.conformance.samples import (
    HOUR_MS,
    START_MS,
    a_definition,
    a_key,
    a_row,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import once
from duly.triggers.instants import from_ms

AT_MS = START_MS + HOUR_MS


async def kinds(store: Store, name: str = "a") -> list[str]:
    """Return the kinds of a schedule's events."""
    schedule = await store.get_schedule(a_key(name))
    assert schedule is not None
    return [event.kind for event in await store.schedule_events(schedule.id)]


class PlanEndCases(StoreConformance):
    """Cases for rows without a next time."""

    @case
    async def test_last_time_finishes_its_schedule(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(once(from_ms(AT_MS)))))
        clock.advance(hours=1)
        assert await plan(store) == PlanReport(rows=1, planned=1, finished=1, now_ms=AT_MS)
        assert (await store.list_rows(), await states(store)) == ([], ["planned"])
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert (schedule.state, schedule.version) == ("finished", 1)
        assert await kinds(store) == ["created", "finished"]

    @case
    async def test_planned_runs_are_counted_down(self, store: Store, clock: ManualClock) -> None:
        policies = Policies(overlap="allow")
        await put(store, a_write(definition=a_definition(max_runs=2, policies=policies)))
        clock.advance(hours=1)
        assert (await plan(store)).finished == 0
        assert (await only_row(store)).runs_left == 1
        clock.advance(hours=1)
        assert (await plan(store)).finished == 1
        assert len(await jobs_of(store)) == 2
        clock.advance(hours=9)
        assert await plan(store) == PlanReport(now_ms=START_MS + 11 * HOUR_MS)

    @case
    async def test_bad_rule_is_set_apart_and_written_down(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write("bad"), a_write("good"))
        bad = next(row for row in await store.list_rows() if row.name == "bad")
        await store.upsert(replace(bad, trigger=BAD))
        clock.advance(hours=1)
        report = await plan(store)
        assert (report.rows, report.planned, report.quarantined, report.finished) == (2, 1, 1, 0)
        assert report.next_run_at_ms == START_MS + 2 * HOUR_MS
        (apart,) = await store.list_quarantined()
        assert (apart.key, apart.nominal_ms) == (a_key("bad"), AT_MS)
        occurrence = await only_occurrence(store, "bad")
        assert (occurrence.state.value, occurrence.job_id) == ("quarantined", None)
        assert (occurrence.nominal_ms, occurrence.reason) == (AT_MS, apart.error)
        schedule = await store.get_schedule(a_key("bad"))
        assert schedule is not None
        assert (schedule.state, schedule.error) == ("quarantined", apart.error)
        assert await kinds(store, "bad") == ["created", "quarantined"]
        assert (await plan(store)).rows == 0

    @case
    async def test_mended_time_is_planned_after_all(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        good = await only_row(store)
        await store.upsert(replace(good, trigger=BAD))
        clock.advance(hours=1)
        assert (await plan(store)).quarantined == 1
        await store.upsert(good)
        assert (await plan(store)).planned == 1
        (job,) = await jobs_of(store)
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("planned", None)
        assert (occurrence.nominal_ms, occurrence.job_id) == (AT_MS, job.id)

    @case
    async def test_row_without_a_definition_is_set_apart(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.upsert(a_row("orphan"))
        await put(store, a_write("good"))
        clock.advance(hours=1)
        report = await plan(store)
        assert (report.rows, report.planned, report.quarantined) == (2, 1, 1)
        orphan = a_row("orphan")
        assert await store.list_quarantined() == [
            Quarantined(a_key("orphan"), orphan.schedule_id, START_MS, NO_DEFINITION)
        ]
        assert (await ledger(store, "orphan"), await jobs_of(store, "orphan")) == ([], [])
        assert (await plan(store)).rows == 0

    @case
    async def test_definition_of_another_schedule_is_none(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A row is not planned by the definition of another schedule that now has its name."""
        await put(store, a_write())
        await store.upsert(a_row(schedule_id="id-earlier", at=START))
        clock.advance(hours=1)
        assert (await plan(store)).quarantined == 1
        assert [each.error for each in await store.list_quarantined()] == [NO_DEFINITION]
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "active"

    @case
    async def test_job_that_cannot_be_made_holds_up_nobody(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A timeout that no job may have quarantines only its own schedule."""
        long = a_definition(policies=Policies(timeout_ms=300 * 24 * HOUR_MS))
        await put(store, a_write("long", long), a_write("good"))
        clock.advance(hours=1)
        report = await plan(store)
        assert (report.rows, report.planned, report.quarantined) == (2, 1, 1)
        (apart,) = await store.list_quarantined()
        assert "timeout_ms" in apart.error
        assert (await states(store, "long"), await states(store, "good")) == (
            ["quarantined"],
            ["planned"],
        )
        assert (await plan(store)).rows == 0

    @case
    async def test_long_owner_holds_up_nobody(self, store: Store, clock: ManualClock) -> None:
        """A scope too long for a job quarantines only its own schedule."""
        key = ScheduleKey("reminders", f"user:{'x' * 400}", "a")
        await put(store, a_write(key=key, id="id-long"), a_write("good"))
        clock.advance(hours=1)
        report = await plan(store)
        assert (report.rows, report.planned, report.quarantined) == (2, 1, 1)
        assert await states(store, "long") == ["quarantined"]
