"""Planning of due rows: which rows, their order, and the jobs created."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from duly.errors import InvalidInput
from duly.model.index_rows import TRIGGER_VERSION
from duly.model.jobs import JobState
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.plans import MAX_PLAN, PlanReport
from duly.model.retries import RetryPolicy
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import Policies
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.inserts import WAIT_LIMIT_S
from duly.testing.conformance.jobs.samples import claimed, path
from duly.testing.conformance.planning.samples import jobs_of, ledger, only_occurrence, plan, states
from duly.testing.conformance.samples import (
    FLOW,
    HOUR_MS,
    MINUTE_MS,
    MINUTELY,
    SCOPE,
    START_MS,
    a_definition,
    a_key,
    a_row,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron

DAY_MS = 24 * HOUR_MS
RICH = Policies(
    priority=7,
    retry=RetryPolicy(attempts=2, backoff="fixed", first_delay_ms=5_000, jitter=False),
    timeout_ms=1_234,
    delivery="at_most_once",
)


class PlanCases(StoreConformance):
    """Cases for plan_occurrences() on time."""

    @case
    async def test_empty_index_plans_nothing(self, store: Store) -> None:
        assert await plan(store) == PlanReport(now_ms=START_MS)

    @case
    async def test_due_row_becomes_ledger_job_and_next_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        (written,) = await put(store, a_write())
        assert written.row is not None
        clock.advance(hours=1)
        at_ms = START_MS + HOUR_MS
        expected = PlanReport(
            rows=1, planned=1, next_run_at_ms=START_MS + 2 * HOUR_MS, now_ms=at_ms
        )
        assert await plan(store) == expected
        (job,) = await jobs_of(store)
        assert await only_occurrence(store) == Occurrence(
            schedule_id=written.schedule.id,
            nominal_ms=at_ms,
            until_ms=at_ms,
            count=1,
            run_at_ms=at_ms,
            state=OccurrenceState.PLANNED,
            flow=FLOW,
            scope=SCOPE,
            name="a",
            job_id=job.id,
        )
        next_ms = START_MS + 2 * HOUR_MS
        assert await only_row(store) == replace(
            written.row, nominal_ms=next_ms, run_at_ms=next_ms, version=2
        )

    @case
    async def test_jobs_say_what_the_schedule_says(self, store: Store, clock: ManualClock) -> None:
        given = {"to": "Åse", "n": [1, None, 2.5], "deep": {"ok": True}}
        key = ScheduleKey("mail", "workspace:acme", "Frühstück/1 %")
        definition = a_definition(input=given, policies=RICH)
        await put(store, a_write(key=key, definition=definition))
        clock.advance(hours=1, seconds=2)
        await plan(store)
        (job,) = await jobs_of(store)
        assert job.id.startswith("job_")
        assert json.loads(job.input) == given
        assert (job.action, job.queue) == ("mail.send", "default")
        assert (job.workspace, job.scope) == ("acme", "workspace:acme")
        assert (job.priority, job.retry, job.timeout_ms) == (7, RICH.retry, 1_234)
        assert (job.max_attempts, job.delivery) == (1, "at_most_once")
        assert (job.schedule_id, job.nominal_ms) == ("id-a", START_MS + HOUR_MS)
        assert (job.run_at_ms, job.created_at_ms) == (
            START_MS + HOUR_MS,
            START_MS + HOUR_MS + 2_000,
        )
        assert job.state is JobState.QUEUED
        assert await path(store, job.id) == ["queued"]

    @case
    async def test_every_scope_has_its_workspace(self, store: Store, clock: ManualClock) -> None:
        scopes = {"system": "system", "user:ada": "user:ada", "workspace:acme": "acme"}
        for scope in scopes:
            await put(store, a_write(key=ScheduleKey(FLOW, scope, "a"), id=f"id-{scope}"))
        clock.advance(hours=1)
        assert (await plan(store)).planned == 3
        for scope, workspace in scopes.items():
            (job,) = await jobs_of(store, scope)
            assert (job.scope, job.workspace, job.input) == (scope, workspace, "null")

    @case
    async def test_job_counts_in_the_workspace_of_its_schedule(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A user's schedule with a workspace runs as the user, in the workspace's share."""
        definition = a_definition(workspace="acme")
        await put(store, a_write(key=ScheduleKey(FLOW, "user:ada", "a"), definition=definition))
        clock.advance(hours=1)
        await plan(store)
        (job,) = await jobs_of(store)
        assert (job.scope, job.workspace) == ("user:ada", "acme")

    @case
    async def test_due_is_inclusive_for_plans(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        clock.advance(hours=1, milliseconds=-1)
        assert await plan(store) == PlanReport(
            next_run_at_ms=START_MS + HOUR_MS, now_ms=START_MS + HOUR_MS - 1
        )
        clock.advance(milliseconds=1)
        assert (await plan(store)).planned == 1

    @case
    async def test_repeated_plan_makes_nothing_more(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write("a"), a_write("b"))
        clock.advance(hours=1)
        assert (await plan(store)).planned == 2
        again = await plan(store)
        assert (again.rows, again.planned) == (0, 0)
        for name in "ab":
            assert len(await jobs_of(store, name)) == 1

    @case
    async def test_planners_at_once_make_one_job_each(
        self, store: Store, clock: ManualClock
    ) -> None:
        names = [f"{number:02}" for number in range(60)]
        await put(store, *(a_write(name) for name in names))
        clock.advance(hours=1)
        reports = await asyncio.gather(*(plan(store, limit=20) for _ in range(6)))
        reports.append(await plan(store))
        assert sum(report.rows for report in reports) == 60
        assert sum(report.planned for report in reports) == 60
        for name in names:
            (job,) = await jobs_of(store, name)
            assert (await only_occurrence(store, name)).job_id == job.id

    @case
    async def test_row_set_back_makes_no_second_job(self, store: Store, clock: ManualClock) -> None:
        (written,) = await put(store, a_write())
        assert written.row is not None
        clock.advance(hours=1)
        await plan(store)
        first = await only_occurrence(store)
        await store.remove(a_key())
        await store.upsert(written.row)
        report = await plan(store)
        assert (report.rows, report.planned) == (1, 0)
        assert [job.id for job in await jobs_of(store)] == [first.job_id]
        assert await only_occurrence(store) == first
        assert (await only_row(store)).nominal_ms == START_MS + 2 * HOUR_MS

    @case
    async def test_order_is_that_of_claims(self, store: Store, clock: ManualClock) -> None:
        for name, minutes, priority in (("late", 40, 9), ("low", 30, 0), ("high", 30, 5)):
            policies = Policies(priority=priority)
            await put(
                store, a_write(name, a_definition(cron(f"{minutes} * * * *"), policies=policies))
            )
        clock.advance(minutes=45)
        planned: list[str] = []
        while (await plan(store, limit=1)).rows:
            names = ("late", "low", "high")
            planned += [n for n in names if n not in planned and await ledger(store, n)]
        assert planned == ["high", "low", "late"]

    @case
    async def test_plan_limits_are_kept(self, store: Store, clock: ManualClock) -> None:
        await put(store, *(a_write(name) for name in "abcde"))
        clock.advance(hours=1)
        reports = [await plan(store, limit=2) for _ in range(4)]
        assert [report.rows for report in reports] == [2, 2, 1, 0]
        due_ms, next_ms = START_MS + HOUR_MS, START_MS + 2 * HOUR_MS
        assert [report.next_run_at_ms for report in reports] == [due_ms, due_ms, next_ms, next_ms]

    @case
    async def test_thousand_rows_are_planned_in_batches(
        self, store: Store, clock: ManualClock
    ) -> None:
        count = 1_000
        await put(store, *(a_write(f"{number:04}") for number in range(count)))
        clock.advance(hours=1)
        reports = [await plan(store, limit=300) for _ in range(5)]
        assert [report.planned for report in reports] == [300, 300, 300, 100, 0]
        (counted,) = await store.count_jobs()
        assert (counted.state, counted.jobs) == (JobState.QUEUED, count)
        for number in range(0, count, 97):
            assert await states(store, f"{number:04}") == ["planned"]

    @case
    async def test_senseless_requests_are_refused(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        clock.advance(hours=1)
        for limit in (-1, 0, MAX_PLAN + 1):
            with pytest.raises(InvalidInput, match="limit"):
                await plan(store, limit=limit)
        for look_ahead_ms in (-1, DAY_MS + 1):
            with pytest.raises(InvalidInput, match="look_ahead_ms"):
                await plan(store, look_ahead_ms=look_ahead_ms)
        assert await ledger(store) == []
        assert (await plan(store, limit=MAX_PLAN, look_ahead_ms=DAY_MS)).rows == 1

    @case
    async def test_only_named_flows_are_planned(self, store: Store, clock: ManualClock) -> None:
        other = ScheduleKey("invoices", SCOPE, "a")
        later = a_definition(cron("30 * * * *"))
        await put(store, a_write(definition=later), a_write(key=other, id="id-other"))
        clock.advance(hours=1)
        nobody = await plan(store, flows=("nobody",))
        assert (nobody.rows, nobody.next_run_at_ms) == (0, None)
        assert (await plan(store, flows=())).rows == 0
        report = await plan(store, flows=("invoices",))
        assert (report.planned, report.next_run_at_ms) == (1, START_MS + 2 * HOUR_MS)
        assert (await states(store, "other"), await states(store)) == (["planned"], [])
        both = await plan(store, flows=("invoices", FLOW))
        assert (both.planned, await states(store)) == (1, ["planned"])

    @case
    async def test_other_hand_overs_are_left_alone(self, store: Store, clock: ManualClock) -> None:
        (http,) = await put(store, a_write("http", a_definition(hand_over="http")))
        external = a_row("external", hand_over="external")
        await store.upsert(external)
        clock.advance(hours=2)
        report = await plan(store, look_ahead_ms=HOUR_MS)
        assert report == PlanReport(now_ms=START_MS + 2 * HOUR_MS)
        rows = await store.list_rows()
        assert http.row in rows
        assert external in rows
        assert (await ledger(store, "http"), await jobs_of(store, "http")) == ([], [])

    @case
    async def test_newer_triggers_wait_for_newer_planners(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write("newer"), a_write("known"))
        newer = next(row for row in await store.list_rows() if row.name == "newer")
        await store.upsert(replace(newer, trigger_version=TRIGGER_VERSION + 1))
        clock.advance(hours=1)
        report = await plan(store, limit=1)
        assert (report.rows, report.planned) == (1, 1)
        assert (await plan(store)).rows == 0
        assert (await ledger(store, "newer"), await store.list_quarantined()) == ([], [])

    @case
    async def test_run_time_decides_and_nominal_time_is_the_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        (written,) = await put(
            store, a_write(definition=a_definition(cron("0 * * * *", spread=900)))
        )
        row = written.row
        assert row is not None
        offset_ms = row.run_at_ms - row.nominal_ms
        assert 0 < offset_ms < 900_000
        clock.advance(milliseconds=row.run_at_ms - START_MS - 1)
        assert (await plan(store)).rows == 0
        clock.advance(milliseconds=1)
        report = await plan(store)
        assert report.next_run_at_ms == row.run_at_ms + HOUR_MS
        occurrence = await only_occurrence(store)
        assert (occurrence.nominal_ms, occurrence.run_at_ms) == (row.nominal_ms, row.run_at_ms)
        (job,) = await jobs_of(store)
        assert (job.nominal_ms, job.run_at_ms) == (row.nominal_ms, row.run_at_ms)

    @case
    async def test_look_ahead_makes_jobs_that_wait(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(MINUTELY)))
        report = await plan(store, look_ahead_ms=3 * MINUTE_MS)
        times = [START_MS + minute * MINUTE_MS for minute in (1, 2, 3)]
        assert (report.rows, report.planned) == (1, 2)  # the write planned the first
        assert report.next_run_at_ms == START_MS + 4 * MINUTE_MS
        jobs = await jobs_of(store)
        assert [job.run_at_ms for job in jobs] == [job.nominal_ms for job in jobs] == times
        assert {job.state for job in jobs} == {JobState.SCHEDULED}
        assert await claimed(store) == []
        clock.advance(minutes=1)
        assert await claimed(store) == [jobs[0].id]

    @case
    async def test_look_ahead_plans_each_time_once(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(MINUTELY)))
        planned = []
        for _ in range(8):
            clock.advance(seconds=30)
            planned.append((await plan(store, look_ahead_ms=2 * MINUTE_MS)).planned)
        assert planned == [1, 1, 0, 1, 0, 1, 0, 1]  # the write planned the first
        times = [START_MS + minute * MINUTE_MS for minute in range(1, 7)]
        assert [each.nominal_ms for each in await ledger(store)] == times
        assert [job.nominal_ms for job in await jobs_of(store)] == times

    @case
    async def test_all_times_of_a_late_planner_run(self, store: Store, clock: ManualClock) -> None:
        """All times within the grace run, regardless of their number."""
        policies = Policies(grace_ms=5 * MINUTE_MS, overlap="allow")
        await put(store, a_write(definition=a_definition(MINUTELY, policies=policies)))
        clock.advance(minutes=4, seconds=10)
        report = await plan(store)
        assert (report.rows, report.planned, report.missed) == (1, 3, 0)
        assert await states(store) == ["planned"] * 4  # the write planned the first
        assert (await only_row(store)).nominal_ms == START_MS + 5 * MINUTE_MS

    @case
    async def test_listeners_hear_of_planned_jobs(self, store: Store, clock: ManualClock) -> None:
        if not store.capabilities.notifies:
            pytest.skip("capability notifies is missing: there is nothing to hear")
        heard = threading.Event()

        def wake(hint: str) -> None:
            if hint in ("queue:default", "queue:*"):
                heard.set()

        await put(store, a_write())
        clock.advance(hours=1)
        end = store.listen(wake)
        await plan(store)
        assert await asyncio.to_thread(heard.wait, WAIT_LIMIT_S)
        end()

    @case
    async def test_edit_after_planning_keeps_the_ledger(
        self, store: Store, clock: ManualClock
    ) -> None:
        policies = Policies(overlap="allow")
        await put(store, a_write(definition=a_definition(policies=policies)))
        clock.advance(hours=1)
        await plan(store)
        before, jobs = await ledger(store), await jobs_of(store)
        worded = a_definition(policies=policies, description="said better")
        await put(store, a_write(definition=worded))
        assert (await ledger(store), await jobs_of(store)) == (before, jobs)
        assert (await plan(store)).rows == 0
        clock.advance(hours=1)
        assert (await plan(store)).planned == 1
        assert [each.nominal_ms for each in await ledger(store)] == [
            START_MS + HOUR_MS,
            START_MS + 2 * HOUR_MS,
        ]

    @case
    async def test_input_is_read_when_it_is_planned(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(input="old")))
        clock.advance(minutes=59, seconds=30)
        await put(store, a_write(definition=a_definition(input="new")))
        clock.advance(seconds=30)
        await plan(store)
        (job,) = await jobs_of(store)
        assert msgspec.json.decode(job.input) == "new"
        assert job.nominal_ms == START_MS + HOUR_MS

    @case
    async def test_claims_and_plans_share_the_ledger(
        self, store: Store, clock: ManualClock
    ) -> None:
        (written,) = await put(store, a_write())
        assert written.row is not None
        clock.advance(hours=1)
        (taken,) = await store.claim_due(claim_id="one")
        at_ms = START_MS + HOUR_MS
        expected = Occurrence(
            schedule_id=written.schedule.id,
            nominal_ms=at_ms,
            until_ms=at_ms,
            count=1,
            run_at_ms=at_ms,
            state=OccurrenceState.FIRED,
            flow=FLOW,
            scope=SCOPE,
            name="a",
        )
        found = await only_occurrence(store)
        assert msgspec.structs.replace(found, fired_at_ms=None) == expected
        await store.remove(a_key())
        await store.upsert(written.row)
        report = await plan(store)
        assert (report.rows, report.planned) == (1, 0)
        assert await jobs_of(store) == []
        assert await only_occurrence(store) == found
        assert await store.claim_due(claim_id="one") == [taken]

    @case
    async def test_planned_times_are_not_claimed_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        (written,) = await put(store, a_write())
        assert written.row is not None
        clock.advance(hours=1)
        await plan(store)
        before = await only_occurrence(store)
        await store.remove(a_key())
        await store.upsert(written.row)
        assert await store.claim_due(claim_id="one") == []
        assert await only_occurrence(store) == before

    @case
    async def test_row_off_its_rule_is_planned_as_it_stands(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        at = START + timedelta(minutes=7)
        await store.remove(a_key())
        await store.upsert(a_row(trigger=cron("0 * * * *"), at=at))
        clock.advance(minutes=7)
        assert (await plan(store)).planned == 1
        assert (await only_occurrence(store)).nominal_ms == START_MS + 7 * MINUTE_MS
        assert (await only_row(store)).nominal_ms == START_MS + HOUR_MS
