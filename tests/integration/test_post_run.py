"""Post-run actions on the schedule: a requested interval is set, failures pause the schedule."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly.app import Duly
from duly.errors import BackendUnavailable
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest
from duly.model.jobs import WorkerId
from duly.model.retries import RetryPolicy
from duly.model.schedules import Limits, Policies, Schedule
from duly.model.scopes import SYSTEM, user
from duly.rules.outcomes import Succeeded, decide
from duly.runtime.worker.post_run import PostRunActions
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain
from duly.triggers import cron, every
from tests.integration.working import in_loop, open_app, working

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
BOUNDS = (60_000, 3_600_000)


def asking_flow(seconds: float, answers: list[Any], *, fails: bool = False) -> Flow:
    flow = Flow("poll", limits=Limits(shortest_interval_ms=1_000))

    @flow.action(retry=RetryPolicy(attempts=1))
    async def look(ctx: Context) -> None:
        answers.append(await ctx.ask_interval(seconds))
        if fails:
            raise ValueError("planted")

    return flow


async def fire(app: Duly, clock: ManualClock, minutes: float = 10) -> None:
    clock.advance(minutes=minutes)
    await app.planner().run_once()
    await drain(app)


async def next_at(app: Duly) -> datetime:
    (row,) = await app.store.list_rows()
    return datetime.fromtimestamp(row.nominal_ms / 1000, UTC)


@pytest.mark.parametrize(
    ("asked_s", "given_s"), [(1_800, 1_800), (1, 60), (1e6, 3_600), (120.5, 120.5)]
)
@in_loop
async def test_a_requested_interval_is_set(clean_url: str, asked_s: float, given_s: float) -> None:
    """It is clamped to the bounds, counted from the nominal time, and recorded as an event."""
    answers: list[Any] = []
    clock = ManualClock(START)
    app = Duly(clean_url, flows=[asking_flow(asked_s, answers)], clock=clock, look_ahead_s=0)
    async with app:
        mine = app.schedules("poll").of(user("ada"))
        made = await mine.create(
            "feed", every(minutes=10), action="look", interval_bounds_ms=BOUNDS
        )
        await fire(app, clock, minutes=10.5)  # half a minute late
        assert answers == [given_s]
        nominal_at = START + timedelta(minutes=10)
        assert await next_at(app) == nominal_at + timedelta(seconds=given_s)
        created, changed = await app.store.schedule_events(made.id)
        assert (created.by, changed.kind, changed.by) == ("user:ada", "changed", "action:poll.look")
        assert changed.detail["trigger"]["interval_ms"] == 600_000
        await fire(app, clock, minutes=0)
        assert len(await app.store.schedule_events(made.id)) == 2


@in_loop
async def test_requesting_the_current_interval_changes_nothing(clean_url: str) -> None:
    clock = ManualClock(START)
    app = Duly(clean_url, flows=[asking_flow(600, [])], clock=clock)
    async with app:
        mine = app.schedules("poll").of(SYSTEM)
        made = await mine.create(
            "feed", every(minutes=10), action="look", interval_bounds_ms=BOUNDS
        )
        await fire(app, clock)
        assert len(await app.store.schedule_events(made.id)) == 1


@in_loop
async def test_only_a_success_sets_it(clean_url: str) -> None:
    answers: list[Any] = []
    clock = ManualClock(START)
    app = Duly(clean_url, flows=[asking_flow(1_800, answers, fails=True)], clock=clock)
    async with app:
        mine = app.schedules("poll").of(SYSTEM)
        made = await mine.create(
            "feed", every(minutes=10), action="look", interval_bounds_ms=BOUNDS
        )
        await fire(app, clock)
        assert answers == [1_800]
        assert len(await app.store.schedule_events(made.id)) == 1
        assert await next_at(app) == START + timedelta(minutes=20)


@pytest.mark.parametrize(
    ("trigger", "bounds", "words"),
    [
        (every(minutes=10), None, "has no interval_bounds_ms"),
        (cron("*/10 * * * *"), BOUNDS, "has no interval; use every"),
    ],
)
@in_loop
async def test_a_request_without_bounds_or_interval_is_refused(
    trigger: Any, bounds: Any, words: str
) -> None:
    clock = ManualClock(START)
    app = Duly("memory:", flows=[asking_flow(60, [])], clock=clock)
    async with app:
        mine = app.schedules("poll").of(SYSTEM)
        await mine.create("feed", trigger, action="look", interval_bounds_ms=bounds)
        clock.advance(minutes=10)
        await app.planner().run_once()
        (end,) = (await drain(app)).ends
        assert words in (end.error or "")
        await app.client.enqueue("poll.look")
        (end,) = (await drain(app)).ends
        assert "was not started by a schedule" in (end.error or "")


@in_loop
async def test_an_edit_meanwhile_is_not_lost(clean_url: str) -> None:
    """The interval is set on the current definition, not on the one read before the edit."""
    clock = ManualClock(START)
    app, store = open_app(clean_url, asking_flow(1_800, []), clock=clock)
    async with app:
        mine = app.schedules("poll").of(SYSTEM)
        await mine.create("feed", every(minutes=10), action="look", interval_bounds_ms=BOUNDS)

        async def edit(writes: Any) -> None:
            if writes[0].by.startswith("action:"):
                store.before.clear()
                await mine.update("feed", description="edited")

        store.before["put_schedules"] = edit
        await fire(app, clock)
        found = await mine.get("feed")
        assert found is not None
        assert (found.definition.description, found.definition.trigger.words) == (
            "edited",
            "Every 30 minutes",
        )


def failing_flow(failures: set[int]) -> Flow:
    """Return a flow whose runs with the given numbers fail."""
    flow, runs = Flow("poll"), iter(range(1_000))

    @flow.action(retry=RetryPolicy(attempts=1))
    async def look() -> None:
        if next(runs) in failures:
            raise ValueError("planted")

    return flow


async def three_strikes(app: Duly) -> Schedule:
    policies = Policies(pause_after_failures=3, retry=RetryPolicy(attempts=1))
    mine = app.schedules("poll").of(SYSTEM)
    return await mine.create("feed", every(minutes=10), action="look", policies=policies)


@in_loop
async def test_failures_in_a_row_pause_a_schedule(
    clean_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(START)
    app = Duly(clean_url, flows=[failing_flow({0, 1, 3, 4, 5})], clock=clock)
    async with app:
        await three_strikes(app)
        mine = app.schedules("poll").of(SYSTEM)
        found = []
        for _ in range(6):
            await fire(app, clock)
            schedule = await mine.get("feed")
            assert schedule is not None
            found.append(schedule.state)
        assert found == ["active"] * 5 + ["paused"]
        events = [event.kind for event in await mine.events("feed")]
        assert events == ["created", "paused"]
        (record,) = [r for r in caplog.records if getattr(r, "event", "") == "schedule.paused"]
        assert (record.levelno, "3 failures" in record.getMessage()) == (logging.WARNING, True)


@in_loop
async def test_a_worker_retries_post_run_actions(clean_url: str) -> None:
    clock = ManualClock(START)
    app, store = open_app(clean_url, failing_flow({0, 1, 2}), clock=clock)
    refusals = [True, True]

    async def refuse(*_: object) -> None:
        if refusals:
            refusals.pop()
            raise BackendUnavailable("planted")

    async with app:
        made = await three_strikes(app)
        await fire(app, clock)
        await fire(app, clock)
        clock.advance(minutes=10)
        await app.planner().run_once()
        store.before["pause_failing"] = refuse
        async with working(app, quick_poll_s=0.02):
            await store.until("pause_failing")
        found = await app.store.find_schedule(made.id)
        assert found is not None
        assert (found.state, refusals) == ("paused", [])
        rows = await app.store.list_occurrences(made.id)
        assert [row.state.value for row in rows] == ["failed"] * 3


@in_loop
async def test_a_stopping_worker_sets_the_requested_interval(clean_url: str) -> None:
    clock = ManualClock(START)
    app, store = open_app(clean_url, asking_flow(1_800, []), clock=clock)
    async with app:
        mine = app.schedules("poll").of(SYSTEM)
        await mine.create("feed", every(minutes=10), action="look", interval_bounds_ms=BOUNDS)
        clock.advance(minutes=10)
        await app.planner().run_once()
        async with working(app, quick_poll_s=0.02) as worker:

            async def refuse(*_: object) -> None:
                if not worker._is_stopping:
                    refusals.release()
                    raise BackendUnavailable("planted")

            refusals = asyncio.Semaphore(0)
            store.before["put_schedules"] = refuse
            for _ in range(3):  # backs off, so the stop comes before the next retry
                await refusals.acquire()
        found = await mine.get("feed")
        assert found is not None
        assert found.definition.trigger.words == "Every 30 minutes"
        assert found.definition.trigger.start_at == START + timedelta(minutes=10)


@pytest.mark.parametrize("word", ["refused", "lost"])
@in_loop
async def test_a_late_holder_sets_nothing(word: str) -> None:
    """Only the current holder of a job acts on its schedule."""
    clock = ManualClock(START)
    app = Duly("memory:", flows=[asking_flow(1_800, [])], clock=clock)
    async with app:
        mine = app.schedules("poll").of(SYSTEM)
        await mine.create("feed", every(minutes=10), action="look", interval_bounds_ms=BOUNDS)
        clock.advance(minutes=10)
        await app.planner().run_once()
        claims = await app.store.claim_jobs(ClaimRequest(WorkerId("worker_late")))
        (job,) = claims.jobs
        late = PostRunActions(app.calls)
        late.ask_interval(job, 1_800_000)
        if word == "lost":
            late.forget(job.id)
        late.ended([decide(job, Succeeded())], [job.id] if word == "refused" else [])
        await late.settle()
        assert await next_at(app) == START + timedelta(minutes=20)
