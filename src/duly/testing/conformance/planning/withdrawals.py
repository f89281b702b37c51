"""Withdrawals: an edit, pause or deletion withdraws planned runs that have not begun."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from duly.model.index import ReconcileReport
from duly.model.jobs import JobState
from duly.model.schedules import Definition, Misfire, Policies, ScheduleId
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, claimed, end
from duly.testing.conformance.planning.samples import (
    FROM_TWO,
    jobs_of,
    ledger,
    line,
    next_hour,
    only_occurrence,
    plan,
    put_hourly,
    states,
)
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, once

ID = ScheduleId("id-a")
AT_MS = START_MS + HOUR_MS


async def edit(store: Store, definition: Definition, by: str = "ada") -> None:
    """Write a definition of the schedule."""
    await put(store, a_write(definition=definition, by=by))


async def planned_ahead(store: Store, clock: ManualClock, definition: Definition) -> None:
    """Store a schedule and plan its 13:00 half a minute ahead."""
    await edit(store, definition)
    clock.advance(minutes=59, seconds=30)
    await plan(store, look_ahead_ms=MINUTE_MS)
    assert await states(store) == ["planned"]


class WithdrawalCases(StoreConformance):
    """Cases for put_schedules() and delete_schedule() after planning."""

    @case
    async def test_edit_just_before_the_time_loses_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        await planned_ahead(store, clock, a_definition(input="old"))
        await edit(store, a_definition(input="new"), by="bob")
        old, new = sorted(await jobs_of(store), key=lambda job: job.input, reverse=True)
        assert (old.input, old.state) == ('"old"', JobState.CANCELLED)
        assert (new.input, new.state) == ('"new"', JobState.SCHEDULED)
        assert old.nominal_ms == new.nominal_ms == new.run_at_ms == AT_MS
        events = await store.job_events(old.id)
        assert (events[-1].actor, events[-1].reason) == ("bob", "withdrawn: schedule changed")
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.job_id) == ("planned", new.id)
        assert (occurrence.reason, occurrence.ended_at_ms) == (None, None)
        assert (await only_row(store)).nominal_ms == START_MS + 2 * HOUR_MS
        clock.advance(seconds=30)
        assert await claimed(store) == [new.id]

    @case
    async def test_the_same_words_end_a_quarantine_and_withdraw_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        await planned_ahead(store, clock, a_definition())
        before = await jobs_of(store)
        await store.upsert(replace(await only_row(store), trigger="nonsense"))
        clock.advance(minutes=61)
        await plan(store)
        assert len(await store.list_quarantined()) == 1
        await edit(store, a_definition())
        assert await store.list_quarantined() == []
        kept = [job for job in await jobs_of(store) if job.nominal_ms == AT_MS]
        assert [(job.id, job.state) for job in kept] == [(before[0].id, JobState.SCHEDULED)]

    @case
    @pytest.mark.parametrize(
        ("misfire", "expected"),
        [
            (Misfire(), [(2, "missed"), (1, "planned")]),
            (Misfire("skip"), [(3, "missed")]),
            (Misfire("catch_up"), [(1, "planned")] * 3),
        ],
        ids=["run_once", "skip", "catch_up"],
    )
    async def test_policy_decides_over_the_times_of_a_quarantine(
        self, store: Store, clock: ManualClock, misfire: Misfire, expected: list[tuple[int, str]]
    ) -> None:
        definition = a_definition(policies=Policies(misfire))
        await edit(store, definition)
        await store.upsert(replace(await only_row(store), trigger="nonsense"))
        await next_hour(store, clock)
        assert await states(store) == ["quarantined"]
        clock.advance(hours=2, minutes=30)
        await edit(store, definition)
        assert [(row.count, row.state.value) for row in await ledger(store)] == expected
        assert (await only_row(store)).nominal_ms == AT_MS + 3 * HOUR_MS

    @case
    async def test_new_trigger_begins_after_a_quarantine(
        self, store: Store, clock: ManualClock
    ) -> None:
        await edit(store, a_definition())
        await store.upsert(replace(await only_row(store), trigger="nonsense"))
        await next_hour(store, clock)
        clock.advance(hours=2, minutes=30)
        await edit(store, a_definition(cron("45 * * * *")))
        assert await states(store) == ["quarantined"]
        assert (await only_row(store)).nominal_ms == AT_MS + 2 * HOUR_MS + 45 * MINUTE_MS

    @case
    async def test_edit_just_after_the_time_loses_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        """An edit replaces a queued run that has not begun; the time is not lost."""
        await edit(store, a_definition(input="old"))
        await next_hour(store, clock)
        clock.advance(seconds=20)
        await edit(store, a_definition(input="new"))
        jobs = sorted(await jobs_of(store), key=lambda job: job.input)
        assert [(job.input, job.state.value) for job in jobs] == [
            ('"new"', "queued"),
            ('"old"', "cancelled"),
        ]
        assert (await only_occurrence(store)).job_id == jobs[0].id

    @case
    async def test_edit_after_the_grace_is_a_misfire(
        self, store: Store, clock: ManualClock
    ) -> None:
        """An edit after the grace of a run that was never queued applies the misfire policy."""
        await planned_ahead(store, clock, a_definition(input="old"))
        clock.advance(minutes=5)
        skipping = Policies(misfire=Misfire("skip"))
        await edit(store, a_definition(policies=skipping))
        occurrence = await only_occurrence(store)
        assert (occurrence.state.value, occurrence.reason) == ("missed", "skip")
        assert occurrence.job_id is None

    @case
    async def test_what_has_begun_is_left_alone(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "buffer_one")
        await next_hour(store, clock)
        job = await claim_one(store, lease_ms=9 * HOUR_MS)
        await next_hour(store, clock)
        await edit(store, a_definition(input="new", policies=Policies(overlap="buffer_one")))
        assert await states(store) == ["fired", "planned"]
        running, *others = await jobs_of(store)
        assert (running.id, running.state) == (job.id, JobState.PROCESSING)
        assert sorted((each.state.value, each.in_line) for each in others) == [
            ("cancelled", False),
            ("scheduled", True),
        ]
        await end(store, job, Succeeded())
        assert (await claim_one(store)).input == '"new"'

    @case
    async def test_released_job_has_begun(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store)
        await next_hour(store, clock)
        job = await claim_one(store, lease_ms=1_000)
        clock.advance(seconds=1)
        await store.release_expired()
        await edit(store, a_definition(input="new"))
        assert await line(store) == [("queued", False)]
        assert (await claim_one(store)).id == job.id

    @case
    async def test_new_trigger_keeps_the_times_it_has(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        clock.advance(minutes=30)
        await plan(store, look_ahead_ms=3 * HOUR_MS)
        assert await states(store) == ["planned"] * 3
        await edit(store, a_definition(cron("0 */2 * * *")))
        assert await states(store) == ["withdrawn"] * 3
        row = await only_row(store)
        assert (row.nominal_ms, row.run_at_ms) == (START_MS + 2 * HOUR_MS,) * 2
        clock.advance(hours=2)
        await plan(store)
        assert await states(store) == ["withdrawn", "planned", "withdrawn"]

    @case
    async def test_new_trigger_drops_the_times_it_has_not(
        self, store: Store, clock: ManualClock
    ) -> None:
        await planned_ahead(store, clock, a_definition())
        await edit(store, a_definition(cron("30 * * * *")))
        withdrawn = await only_occurrence(store)
        assert withdrawn.state.value == "withdrawn"
        assert withdrawn.reason == "withdrawn: schedule changed"
        assert (withdrawn.ended_at_ms, withdrawn.fired_at_ms) == (None, None)
        assert await line(store) == [("cancelled", False)]
        assert (await only_row(store)).nominal_ms == START_MS + HOUR_MS + 30 * MINUTE_MS

    @case
    async def test_description_and_note_touch_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        await planned_ahead(store, clock, a_definition())
        before = (await ledger(store), await jobs_of(store), (await only_row(store)).nominal_ms)
        await edit(store, a_definition(description="said better", note="for ada"))
        after = (await ledger(store), await jobs_of(store), (await only_row(store)).nominal_ms)
        assert after == before

    @case
    async def test_same_definition_touches_nothing(self, store: Store, clock: ManualClock) -> None:
        await planned_ahead(store, clock, a_definition())
        before = (await ledger(store), await jobs_of(store), await only_row(store))
        await edit(store, a_definition())
        assert (await ledger(store), await jobs_of(store), await only_row(store)) == before

    @case
    async def test_pause_withdraws(self, store: Store, clock: ManualClock) -> None:
        await planned_ahead(store, clock, a_definition())
        await edit(store, a_definition(enabled=False), by="bob")
        (job,) = await jobs_of(store)
        events = await store.job_events(job.id)
        assert (job.state, events[-1].actor) == (JobState.CANCELLED, "bob")
        reason = "withdrawn: schedule paused"
        assert events[-1].reason == (await only_occurrence(store)).reason == reason
        assert await states(store) == ["withdrawn"]
        clock.advance(minutes=1)
        assert await claimed(store) == []
        assert await store.list_rows() == []

    @case
    async def test_pause_taken_back_in_time_loses_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        await planned_ahead(store, clock, a_definition())
        await edit(store, a_definition(enabled=False))
        clock.advance(seconds=10)
        await edit(store, a_definition())
        assert await states(store) == ["planned"]
        clock.advance(seconds=20)
        assert len(await claimed(store)) == 1

    @case
    async def test_deletion_withdraws(self, store: Store, clock: ManualClock) -> None:
        await planned_ahead(store, clock, a_definition())
        await store.delete_schedule(a_key(), by="bob")
        (job,) = await jobs_of(store)
        events = await store.job_events(job.id)
        reason = "withdrawn: schedule deleted"
        assert (events[-1].actor, events[-1].reason) == ("bob", reason)
        withdrawn = await only_occurrence(store)
        assert (withdrawn.state.value, withdrawn.reason) == ("withdrawn", reason)
        clock.advance(minutes=1)
        assert await claimed(store) == []

    @case
    async def test_deletion_covers_the_times_that_had_come(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A deletion records due times that were not planned; they do not run."""
        await put(store, a_write())
        clock.advance(hours=2, minutes=30)
        await store.delete_schedule(a_key())
        rows = await ledger(store)
        times = [START_MS + hour * HOUR_MS for hour in (1, 2)]
        assert [sum(row.covers(ms) for row in rows) for ms in times] == [1, 1]
        assert {row.state.value for row in rows} <= {"missed", "withdrawn"}
        assert await claimed(store) == []

    @case
    async def test_refused_writes_withdraw_nothing(self, store: Store, clock: ManualClock) -> None:
        await planned_ahead(store, clock, a_definition())
        changed = a_definition(input="new")
        await store.put_schedules([a_write(definition=changed, expected_version=7)])
        await store.delete_schedule(a_key(), expected_version=7)
        assert (await states(store), await line(store)) == (["planned"], [("scheduled", False)])

    @case
    async def test_extras_survive_an_edit_and_not_the_deletion(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        clock.advance(minutes=30)
        assert await store.run_now(ID, "one") is not None
        await edit(store, a_definition(input="new"))
        await edit(store, a_definition(enabled=False))
        assert (await states(store), await line(store)) == (["planned"], [("queued", False)])
        await store.delete_schedule(a_key())
        assert (await states(store), await line(store)) == (["withdrawn"], [("cancelled", False)])

    @case
    async def test_marker_goes_to_who_is_left(self, store: Store, clock: ManualClock) -> None:
        """The marker passes to a job that is not withdrawn together with its holder."""
        await put_hourly(store, "buffer_one")
        await next_hour(store, clock)
        clock.advance(minutes=10)
        extra = await store.run_now(ID, "one")
        assert extra is not None
        assert await line(store) == [("queued", False), ("scheduled", True)]
        await edit(store, a_definition(enabled=False))
        assert await line(store) == [("cancelled", False), ("queued", False)]
        assert await claimed(store) == [extra.job_id]

    @case
    async def test_line_is_withdrawn_before_its_holder(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store, "buffer_one")
        await next_hour(store, clock)
        await next_hour(store, clock)
        jobs = await jobs_of(store)
        await edit(store, a_definition(enabled=False))
        paths = [[each.state.value for each in await store.job_events(job.id)] for job in jobs]
        assert paths == [["queued", "cancelled"], ["scheduled", "cancelled"]]
        await edit(store, a_definition())
        assert (await next_hour(store, clock)).planned == 1

    @case
    async def test_single_time_comes_back(self, store: Store, clock: ManualClock) -> None:
        """A withdrawn single time is planned again when an edit restores it."""
        at = once(START + timedelta(hours=1))
        await planned_ahead(store, clock, a_definition(at, input="old"))
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "finished"
        later = once(START + timedelta(hours=2))
        (written,) = await put(store, a_write(definition=a_definition(later)))
        assert (written.schedule.state, await states(store)) == ("active", ["withdrawn"])
        (written,) = await put(store, a_write(definition=a_definition(at, input="new")))
        assert (written.schedule.state, written.row) == ("finished", None)
        assert await states(store) == ["planned"]
        clock.advance(seconds=30)
        assert (await claim_one(store)).input == '"new"'

    @case
    async def test_single_time_is_edited(self, store: Store, clock: ManualClock) -> None:
        at = once(START + timedelta(hours=1))
        await planned_ahead(store, clock, a_definition(at, input="old"))
        (written,) = await put(store, a_write(definition=a_definition(at, input="new")))
        assert (written.schedule.state, written.row) == ("finished", None)
        assert await states(store) == ["planned"]
        clock.advance(seconds=30)
        assert (await claim_one(store)).input == '"new"'
        kinds = [each.kind for each in await store.schedule_events(ID)]
        assert kinds == ["created", "finished", "changed", "finished"]

    @case
    async def test_withdrawn_runs_are_given_back(self, store: Store, clock: ManualClock) -> None:
        await edit(store, a_definition(max_runs=5))
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        assert (await only_row(store)).runs_left == 2
        clock.advance(minutes=10)
        await edit(store, a_definition(max_runs=5, input="new"))
        row = await only_row(store)
        assert (row.nominal_ms, row.runs_left) == (START_MS + 2 * HOUR_MS, 4)

    @case
    async def test_last_runs_are_given_back(self, store: Store, clock: ManualClock) -> None:
        """An edit refunds withdrawn runs and reactivates a schedule that had finished."""
        await edit(store, a_definition(max_runs=3))
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        assert (await plan(store, look_ahead_ms=9 * HOUR_MS)).finished == 1
        clock.advance(minutes=10)
        (written,) = await put(
            store, a_write(definition=a_definition(cron("30 * * * *"), max_runs=3))
        )
        assert written.schedule.state == "active"
        assert written.row is not None
        assert written.row.runs_left == 2
        assert await states(store) == ["succeeded", "withdrawn", "withdrawn"]

    @case
    async def test_withdrawn_runs_go_on_with_new_ones(
        self, store: Store, clock: ManualClock
    ) -> None:
        await edit(store, a_definition(max_runs=3))
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        clock.advance(minutes=10)
        await edit(store, a_definition(max_runs=7))
        row = await only_row(store)
        assert (row.nominal_ms, row.runs_left) == (AT_MS, 7)

    @case
    async def test_times_set_back_are_covered_once(self, store: Store, clock: ManualClock) -> None:
        """A missed range includes withdrawn times and excludes times with a row of their own."""
        policies = Policies(overlap="allow", priority=1)
        definition = a_definition(FROM_TWO, policies=policies)
        await edit(store, definition)
        await plan(store, look_ahead_ms=6 * MINUTE_MS)
        clock.advance(minutes=2)
        await claim_one(store, lease_ms=9 * HOUR_MS)
        fifth = (await jobs_of(store))[3]
        await store.retry_job(fifth.id)
        assert await claimed(store, lease_ms=9 * HOUR_MS) == [fifth.id]
        await edit(store, msgspec.structs.replace(definition, input="new"))
        assert await states(store) == ["fired", "planned", "withdrawn", "fired", "withdrawn"]
        clock.advance(minutes=30)
        await plan(store)
        await store.promote_due()
        rows = await ledger(store)
        minutes = [START_MS + minute * MINUTE_MS for minute in range(2, 33)]
        assert [sum(each.covers(ms) for each in rows) for ms in minutes] == [1] * 31
        assert sum(each.count for each in rows) == 31

    @case
    async def test_lost_rows_know_what_was_withdrawn(
        self, store: Store, clock: ManualClock
    ) -> None:
        await edit(store, a_definition(max_runs=5))
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        clock.advance(minutes=10)
        await edit(store, a_definition(max_runs=5, input="new"))
        right = await only_row(store)
        await store.remove(a_key())
        assert await store.reconcile() == ReconcileReport(checked=1, added=1)
        repaired = await only_row(store)
        assert (repaired.nominal_ms, repaired.runs_left) == (right.nominal_ms, right.runs_left)
