"""Overlap: occurrences that are due while an earlier one has not ended."""

from __future__ import annotations

import asyncio
import threading

import pytest

from duly.model.index_rows import policies_text
from duly.model.jobs import JobState
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.outcomes import Cancelled, Failed, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.inserts import WAIT_LIMIT_S
from duly.testing.conformance.jobs.samples import (
    PLAIN,
    claim_one,
    claimed,
    claims,
    end,
    path,
    reasons,
    the_job,
)
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
    MINUTE_MS,
    START_MS,
    a_definition,
    a_write,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

AHEAD_MS = 3 * HOUR_MS
STOPPED = "cancel_running: a later run came"


class PlannedTurnCases(StoreConformance):
    """Cases for overlap found by the planner."""

    @case
    async def test_jobs_carry_their_policies_and_turns(
        self, store: Store, clock: ManualClock
    ) -> None:
        late = Policies(misfire=Misfire("catch_up"), overlap="buffer_one", grace_ms=0)
        free = Policies(overlap="allow", priority=3)
        await put_hourly(store)
        await put(store, a_write("late", a_definition(policies=late)))
        await put(store, a_write("free", a_definition(policies=free)))
        clock.advance(hours=1, milliseconds=1)
        await plan(store)
        turns = {}
        for name in ("a", "late", "free"):
            (job,) = await jobs_of(store, name)
            turns[name] = (job.turn, job.policies)
        assert turns == {
            "a": ("asks", "{}"),
            "late": ("waits", policies_text(late)),
            "free": (None, policies_text(free)),
        }

    @case
    async def test_skip_makes_no_second_job(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store)
        await next_hour(store, clock)
        (job,) = await jobs_of(store)
        report = await next_hour(store, clock)
        assert (report.rows, report.planned, report.skipped) == (1, 0, 1)
        assert [each.id for each in await jobs_of(store)] == [job.id]
        _, skipped = await ledger(store)
        assert (skipped.state.value, skipped.job_id) == ("skipped", None)
        assert skipped.reason == f"job {job.id} had not ended"
        assert skipped.ended_at_ms == skipped.nominal_ms == START_MS + 2 * HOUR_MS

    @case
    async def test_skip_ends_with_the_one_in_its_way(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store)
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        assert (await next_hour(store, clock)).planned == 1
        assert await states(store) == ["succeeded", "planned"]

    @case
    async def test_allow_runs_side_by_side(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "allow")
        for _ in range(3):
            report = await next_hour(store, clock)
            assert (report.planned, report.skipped) == (1, 0)
        assert await line(store) == [("queued", False)] * 3

    @case
    async def test_buffer_one_keeps_one_in_line(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "buffer_one")
        reports = [await next_hour(store, clock) for _ in range(3)]
        assert [(each.planned, each.skipped) for each in reports] == [(1, 0), (1, 0), (0, 1)]
        assert await line(store) == [("queued", False), ("scheduled", True)]
        assert await states(store) == ["planned", "planned", "skipped"]

    @case
    async def test_cancel_running_asks_the_holder_to_stop(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store, "cancel_running")
        await next_hour(store, clock)
        running = await claim_one(store, lease_ms=AHEAD_MS)
        report = await next_hour(store, clock)
        assert (report.planned, report.skipped) == (1, 0)
        assert (await the_job(store, running.id)).cancel_asked
        assert await line(store) == [("processing", False), ("scheduled", True)]
        await end(store, running, Cancelled())
        assert await line(store) == [("cancelled", False), ("queued", False)]
        assert await states(store) == ["failed", "planned"]

    @case
    async def test_cancel_running_keeps_the_newest(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, "cancel_running")
        await next_hour(store, clock)
        await claim_one(store, lease_ms=AHEAD_MS)
        await next_hour(store, clock)
        await next_hour(store, clock)
        _, second, third = await jobs_of(store)
        assert await line(store) == [
            ("processing", False),
            ("cancelled", False),
            ("scheduled", True),
        ]
        overtaken = f"job {third.id} came after it"
        assert await reasons(store, second.id) == [None, overtaken]
        skipped = (await ledger(store))[1]
        assert (skipped.state.value, skipped.reason) == ("skipped", overtaken)
        assert skipped.ended_at_ms == START_MS + 3 * HOUR_MS

    @case
    async def test_cancel_running_takes_a_waiting_holder_away(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store, "cancel_running")
        await next_hour(store, clock)
        await next_hour(store, clock)
        first, second = await jobs_of(store)
        assert await line(store) == [("cancelled", False), ("queued", False)]
        assert await reasons(store, first.id) == [None, STOPPED]
        assert await path(store, second.id) == ["queued"]
        assert await states(store) == ["skipped", "planned"]
        assert await claimed(store) == [second.id]

    @case
    async def test_cancel_running_takes_a_retry_away(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store, "cancel_running", retry=PLAIN)
        await next_hour(store, clock)
        await end(store, await claim_one(store), Failed("no luck"))
        await next_hour(store, clock)
        assert await line(store) == [("cancelled", False), ("queued", False)]
        assert await states(store) == ["failed", "planned"]

    @case
    async def test_cancel_running_at_once_runs_the_newest(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Of several times planned at once with cancel_running, only the newest runs."""
        policies = Policies(grace_ms=9 * HOUR_MS, overlap="cancel_running")
        await put(store, a_write(definition=a_definition(policies=policies)))
        clock.advance(hours=2)
        report = await plan(store)
        assert (report.planned, report.skipped) == (1, 1)
        (newest,) = await jobs_of(store)
        assert (newest.nominal_ms, newest.state.value) == (START_MS + 2 * HOUR_MS, "queued")
        overtaken = (await ledger(store))[0]
        assert overtaken.reason == f"job {newest.id} came after it"
        assert await states(store) == ["skipped", "planned"]
        await end(store, await claim_one(store), Succeeded())
        await next_hour(store, clock)
        assert await states(store) == ["skipped", "succeeded", "planned"]

    @case
    async def test_older_run_does_not_cancel_a_newer_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A late promotion of an older run does not cancel a newer run that is already running."""
        await put_hourly(store, "cancel_running")
        clock.advance(minutes=59, seconds=30)
        await plan(store, look_ahead_ms=MINUTE_MS)
        clock.advance(minutes=1)
        newer = await store.run_now(ScheduleId("id-a"), "one")
        assert newer is not None
        running = await claim_one(store)
        assert not (await the_job(store, running.id)).cancel_asked
        older, _ = await jobs_of(store)
        assert (running.id, older.state.value) == (newer.job_id, "cancelled")
        assert await reasons(store, older.id) == [None, f"job {newer.job_id} came after it"]
        assert await states(store) == ["skipped", "fired"]

    @case
    async def test_occurrences_of_one_plan_ask_in_order(
        self, store: Store, clock: ManualClock
    ) -> None:
        policies = Policies(grace_ms=HOUR_MS, overlap="buffer_one")
        await put(store, a_write(definition=a_definition(FROM_TWO, policies=policies)))
        clock.advance(minutes=4)
        report = await plan(store)
        assert (report.planned, report.skipped) == (2, 1)
        assert await line(store) == [("queued", False), ("scheduled", True)]
        assert await states(store) == ["planned", "planned", "skipped"]

    @case
    async def test_caught_up_runs_one_after_another(self, store: Store, clock: ManualClock) -> None:
        late = Policies(misfire=Misfire("catch_up", limit=3, per_minute=60), grace_ms=0)
        await put(store, a_write(definition=a_definition(FROM_TWO, policies=late)))
        clock.advance(minutes=10, seconds=30)
        assert (await plan(store)).planned == 3
        clock.advance(seconds=3)
        assert await store.promote_due() == 2
        assert await line(store) == [("queued", False), ("scheduled", True), ("scheduled", True)]
        order = []
        for _ in range(3):
            job = await claim_one(store)
            order.append(((job.nominal_ms or 0) - START_MS) // MINUTE_MS)
            await end(store, job, Succeeded())
        assert order == [8, 9, 10]
        assert await states(store) == ["missed", *["succeeded"] * 3]

    @case
    async def test_on_time_gives_way_to_what_is_caught_up(
        self, store: Store, clock: ManualClock
    ) -> None:
        late = Policies(misfire=Misfire("catch_up", limit=1), grace_ms=0)
        await put(store, a_write(definition=a_definition(FROM_TWO, policies=late)))
        clock.advance(minutes=10)
        report = await plan(store)
        assert (report.planned, report.skipped) == (1, 1)
        assert (await states(store))[-2:] == ["planned", "skipped"]


async def put_ahead(store: Store, clock: ManualClock, policies: Policies) -> None:
    """Plan three hours ahead, claim the first run, and advance one hour while it runs."""
    await put(store, a_write(definition=a_definition(policies=policies)))
    assert (await plan(store, look_ahead_ms=AHEAD_MS)).planned == 3
    clock.advance(hours=1)
    await claim_one(store, lease_ms=4 * HOUR_MS)
    clock.advance(hours=1)


class PromotedTurnCases(StoreConformance):
    """Cases for overlap of jobs planned ahead, decided when they are due."""

    @case
    async def test_skip_takes_the_job_away(self, store: Store, clock: ManualClock) -> None:
        await put_ahead(store, clock, Policies())
        assert await store.promote_due() == 1
        first, second, _ = await jobs_of(store)
        assert await line(store) == [
            ("processing", False),
            ("cancelled", False),
            ("scheduled", False),
        ]
        why = f"job {first.id} had not ended"
        assert await reasons(store, second.id) == [None, why]
        skipped = (await ledger(store))[1]
        assert (skipped.state.value, skipped.reason) == ("skipped", why)
        assert (skipped.job_id, skipped.ended_at_ms) == (second.id, START_MS + 2 * HOUR_MS)
        assert await store.promote_due() == 0

    @case
    async def test_claims_decide_as_the_keeper_does(self, store: Store, clock: ManualClock) -> None:
        await put_ahead(store, clock, Policies())
        assert await claimed(store) == []
        assert (await line(store))[1] == ("cancelled", False)
        assert (await states(store))[1] == "skipped"

    @case
    async def test_buffer_one_stands_in_line_until_the_end(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_ahead(store, clock, Policies(overlap="buffer_one"))
        asked = await claims(store)
        assert (asked.jobs, asked.wake_at_ms) == ([], START_MS + 3 * HOUR_MS)
        assert (await line(store))[1] == ("scheduled", True)
        clock.advance(hours=1)
        asked = await claims(store)
        # Only the end of a lease is left: a job in line has no time of its own.
        assert (asked.jobs, asked.wake_at_ms) == ([], START_MS + 5 * HOUR_MS)
        assert await line(store) == [
            ("processing", False),
            ("scheduled", True),
            ("cancelled", False),
        ]
        assert (await states(store))[1:] == ["planned", "skipped"]
        assert await store.promote_due() == 0

    @case
    async def test_cancel_running_stops_at_promotion(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_ahead(store, clock, Policies(overlap="cancel_running"))
        await store.promote_due()
        running, *_ = await jobs_of(store)
        assert running.cancel_asked
        assert (await line(store))[:2] == [("processing", False), ("scheduled", True)]

    @case
    async def test_several_due_at_once_ask_in_order(self, store: Store, clock: ManualClock) -> None:
        policies = Policies(overlap="buffer_one", grace_ms=AHEAD_MS)
        await put(store, a_write(definition=a_definition(policies=policies)))
        await plan(store, look_ahead_ms=AHEAD_MS)
        clock.advance(hours=3)
        assert await store.promote_due() == 3
        assert await line(store) == [
            ("queued", False),
            ("scheduled", True),
            ("cancelled", False),
        ]

    @case
    async def test_retry_whose_time_comes_with_the_next_run_gives_way(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put_hourly(store, "cancel_running", retry=PLAIN)
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        clock.advance(hours=1)
        job = await claim_one(store, lease_ms=AHEAD_MS)
        clock.advance(minutes=59, seconds=59)
        await end(store, job, Failed("no luck"))
        clock.advance(seconds=1)
        assert await store.promote_due() == 2
        assert await line(store) == [("cancelled", False), ("queued", False)]
        assert (await path(store, job.id))[-3:] == ["retrying", "queued", "cancelled"]

    @case
    async def test_schedules_are_in_nobody_elses_way(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write("a"), a_write("b"))
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(hours=1)
        assert await store.promote_due() == 2
        assert (await line(store, "a"), await line(store, "b")) == (
            [("queued", False)],
            [("queued", False)],
        )

    @case
    async def test_worker_hears_that_it_is_to_stop(self, store: Store, clock: ManualClock) -> None:
        if not store.capabilities.notifies:
            pytest.skip("capability notifies is missing: there is nothing to hear")
        await put_hourly(store, "cancel_running")
        await next_hour(store, clock)
        job = await claim_one(store, lease_ms=AHEAD_MS)
        heard = threading.Event()

        def wake(hint: str) -> None:
            if hint in (f"cancel:{job.id}", "queue:*"):  # sent while nothing was listening
                heard.set()

        stop = store.listen(wake)
        await next_hour(store, clock)
        assert await asyncio.to_thread(heard.wait, WAIT_LIMIT_S)
        stop()
        assert (await the_job(store, job.id)).state is JobState.PROCESSING
