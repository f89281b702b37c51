"""Writes that plan: times within the next minute are planned in the write's transaction."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from duly.model.jobs import JobState
from duly.model.schedules import Misfire, Policies
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.inserts import WAIT_LIMIT_S
from duly.testing.conformance.planning.samples import (
    jobs_of,
    ledger,
    line,
    only_occurrence,
    plan,
    states,
)
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    MINUTELY,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, every, once


class AtOnceCases(StoreConformance):
    """Cases for put_schedules() of schedules due within a minute."""

    @case
    async def test_next_minute_is_planned_by_the_write(self, store: Store) -> None:
        (written,) = await put(store, a_write(definition=a_definition(MINUTELY, input=7)))
        (job,) = await jobs_of(store)
        assert (job.state, job.input) == (JobState.SCHEDULED, "7")
        assert job.nominal_ms == job.run_at_ms == START_MS + MINUTE_MS
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.job_id) == ("planned", job.id)
        assert written.row == await only_row(store)
        assert written.row is not None
        assert written.row.nominal_ms == START_MS + 2 * MINUTE_MS
        assert written.schedule == await store.get_schedule(a_key())
        assert (await plan(store)).rows == 0

    @case
    async def test_later_times_are_left_to_planners(self, store: Store) -> None:
        (written,) = await put(
            store,
            a_write(definition=a_definition(once(START + timedelta(minutes=1, milliseconds=1)))),
        )
        assert written.row is not None
        assert (await ledger(store), await jobs_of(store)) == ([], [])

    @case
    async def test_all_times_of_the_look_ahead_are_planned(self, store: Store) -> None:
        key = a_key(scope="system")
        await put(store, a_write(key=key, definition=a_definition(every(seconds=20))))
        times = [START_MS + 20_000 * number for number in (1, 2, 3)]
        assert [job.nominal_ms for job in await jobs_of(store)] == times
        assert (await only_row(store)).nominal_ms == START_MS + 80_000

    @case
    async def test_single_time_is_finished_by_the_write(self, store: Store) -> None:
        at = START + timedelta(seconds=30)
        (written,) = await put(store, a_write(definition=a_definition(once(at))))
        assert (written.row, written.schedule.state) == (None, "finished")
        assert await states(store) == ["planned"]
        kinds = [each.kind for each in await store.schedule_events(written.schedule.id)]
        assert kinds == ["created", "finished"]

    @case
    async def test_runs_are_charged_by_the_write(self, store: Store) -> None:
        await put(store, a_write(definition=a_definition(MINUTELY, max_runs=5)))
        assert (await only_row(store)).runs_left == 4

    @case
    async def test_edit_of_the_trigger_plans_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        clock.advance(minutes=10)
        (written,) = await put(store, a_write(definition=a_definition(MINUTELY)))
        assert [job.nominal_ms for job in await jobs_of(store)] == [START_MS + 11 * MINUTE_MS]
        assert written.row is not None
        assert written.row.nominal_ms == START_MS + 12 * MINUTE_MS

    @case
    async def test_resume_plans_at_once(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(enabled=False)))
        clock.advance(minutes=59, seconds=30)
        await put(store, a_write())
        assert [job.nominal_ms for job in await jobs_of(store)] == [START_MS + HOUR_MS]

    @case
    async def test_overdue_row_is_planned_by_an_edit(
        self, store: Store, clock: ManualClock
    ) -> None:
        """An edit of an overdue schedule plans its due times by the new policies."""
        await put(store, a_write())
        clock.advance(hours=5, minutes=30)
        skipping = Policies(misfire=Misfire("skip"))
        (written,) = await put(store, a_write(definition=a_definition(policies=skipping)))
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.count) == ("missed", 5)
        assert written.row is not None
        assert written.row.nominal_ms == START_MS + 6 * HOUR_MS

    @case
    async def test_words_plan_nothing(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        clock.advance(minutes=59, seconds=30)
        before = await only_row(store)
        (same,) = await put(store, a_write())
        (worded,) = await put(store, a_write(definition=a_definition(description="x", note="y")))
        assert (same.row, await jobs_of(store)) == (before, [])
        assert worded.row is not None
        assert worded.row.nominal_ms == before.nominal_ms

    @case
    async def test_other_hand_overs_wait_for_their_own(self, store: Store) -> None:
        definition = a_definition(MINUTELY, hand_over="http")
        (written,) = await put(store, a_write(definition=definition))
        assert written.row is not None
        assert (await ledger(store), await jobs_of(store)) == ([], [])

    @case
    async def test_paused_schedules_plan_nothing(self, store: Store) -> None:
        await put(store, a_write(definition=a_definition(MINUTELY, enabled=False)))
        assert (await ledger(store), await jobs_of(store)) == ([], [])

    @case
    async def test_each_of_a_batch_is_planned(self, store: Store) -> None:
        hourly, minutely = a_definition(), a_definition(MINUTELY)
        written = await put(
            store, a_write("a", minutely), a_write("b", hourly), a_write("c", minutely)
        )
        shown = [(await states(store, name)) for name in "abc"]
        assert shown == [["planned"], [], ["planned"]]
        rows = {row.name: row for row in await store.list_rows()}
        assert [each.row for each in written] == [rows["a"], rows["b"], rows["c"]]

    @case
    async def test_one_schedule_twice_in_a_batch_is_planned_once(self, store: Store) -> None:
        """The second write of a schedule in a batch withdraws what the first one planned."""
        first, second = (a_definition(MINUTELY, input=number) for number in (1, 2))
        await put(store, a_write(definition=first), a_write(definition=second))
        jobs = sorted(await jobs_of(store), key=lambda job: job.input)
        assert [(job.input, job.state.value) for job in jobs] == [
            ("1", "cancelled"),
            ("2", "scheduled"),
        ]
        assert (await only_occurrence(store)).job_id == jobs[1].id

    @case
    async def test_due_job_of_a_write_is_heard_of(self, store: Store, clock: ManualClock) -> None:
        if not store.capabilities.notifies:
            pytest.skip("capability notifies is missing: there is nothing to hear")
        await put(store, a_write())
        clock.advance(hours=1)
        heard = threading.Event()

        def wake(hint: str) -> None:
            if hint in ("queue:default", "queue:*"):
                heard.set()

        stop = store.listen(wake)
        await put(store, a_write(definition=a_definition(input="new")))
        assert await asyncio.to_thread(heard.wait, WAIT_LIMIT_S)
        stop()
        assert await line(store) == [("queued", False)]

    @case
    async def test_spread_counts_for_the_look_ahead(self, store: Store) -> None:
        """The look-ahead applies to the run time, not the nominal time."""
        (written,) = await put(
            store, a_write(definition=a_definition(cron("* * * * *", spread=59)))
        )
        jobs = await jobs_of(store)
        assert written.row is not None
        offset_ms = written.row.run_at_ms - written.row.nominal_ms
        assert {job.run_at_ms - (job.nominal_ms or 0) for job in jobs} == {offset_ms}
        assert {job.run_at_ms <= START_MS + MINUTE_MS for job in jobs} == {True}
        assert written.row.run_at_ms > START_MS + MINUTE_MS
