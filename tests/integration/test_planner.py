"""The planner: makes each job once, drains what is due, wakes in time and survives outages."""

import asyncio
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from duly.app import Duly
from duly.cli import main
from duly.flows.collections import ScheduleCollection
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.index_rows import IndexRow, trigger_text
from duly.model.jobs import JobState
from duly.model.plans import PlanReport, PlanRequest
from duly.model.retries import RetryPolicy
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.model.scopes import SYSTEM, user, workspace
from duly.model.stored_jobs import JobFilter
from duly.rules.planning import MAX_PLANNED
from duly.runtime import Planner, PlannerOptions, WorkerOptions
from duly.runtime import planner as planner_module
from duly.stores.port import Capabilities
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain
from duly.triggers import cron, every, once
from duly.triggers.instants import to_ms
from tests.integration.working import in_loop, open_app

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
START_MS = to_ms(START)
FOREVER_S = 3_600.0
A_MINUTE = timedelta(minutes=1)


@pytest.fixture
def url(any_url: str) -> str:
    """Return the URL of each backend in turn, without schedules of other tests."""
    if any_url.startswith("postgresql"):
        with psycopg.connect(any_url) as connection:
            for table in ("duly_schedule_index", "duly_schedule_rules", "duly_resources"):
                connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.Identifier(table)))
            connection.execute("TRUNCATE duly_occurrences, duly_schedule_events")
    return any_url


def noting_flow() -> tuple[Flow, list[Any]]:
    """Return a flow with one action that records its input, and the record."""
    flow, seen = Flow("work"), []

    @flow.action(name="note")
    async def note(what: object) -> None:
        seen.append(what)

    return flow, seen


def schedules(app: Duly) -> ScheduleCollection:
    return ScheduleCollection(app.store, "work", actions=["note"])


async def states(app: Duly, schedule_id: ScheduleId) -> list[str]:
    rows = await app.store.list_occurrences(schedule_id, limit=1_000)
    return [row.state.value for row in reversed(rows)]


@in_loop
async def test_every_occurrence_runs_once(url: str) -> None:
    flow, seen = noting_flow()
    clock = ManualClock(START)
    app = Duly(url, flows=[flow], clock=clock, look_ahead_s=0)
    async with app:
        ours = schedules(app)
        ticking = await ours.of(SYSTEM).create(
            "tick", every(seconds=30), action="note", input="tick"
        )
        daily = await ours.of(user("ada")).create(
            "five past", cron("5 * * * *"), action="note", input={"to": "ada"}
        )
        planner = app.planner()
        for _ in range(20):
            clock.advance(seconds=30)
            await planner.run_once()
            await drain(app)
        assert seen.count("tick") == 20
        assert seen.count({"to": "ada"}) == 1
        assert len(seen) == 21
        assert await states(app, ticking.id) == ["succeeded"] * 20
        (row,) = await app.store.list_occurrences(daily.id)
        assert (row.state.value, row.nominal_ms) == ("succeeded", START_MS + 5 * 60_000)
        assert (row.fired_at_ms, row.ended_at_ms) == (row.nominal_ms, row.nominal_ms)


@in_loop
async def test_five_planners_make_one_job_for_each_interval(url: str) -> None:
    flow, _ = noting_flow()
    clock = ManualClock(START)
    app = Duly(url, flows=[flow], clock=clock, look_ahead_s=0)
    async with app:
        made = await (
            schedules(app)
            .of(SYSTEM)
            .create("tick", every(seconds=30), action="note", policies=Policies(overlap="allow"))
        )
        planners = [app.planner() for _ in range(5)]
        for _ in range(20):
            clock.advance(seconds=30)
            await asyncio.gather(*(planner.run_once() for planner in planners))
        jobs = await app.store.list_jobs(JobFilter(schedule_id=made.id))
        times = [START_MS + 30_000 * number for number in range(1, 21)]
        assert sorted(job.nominal_ms or 0 for job in jobs) == times


@in_loop
async def test_an_outage_is_caught_up_as_the_policy_says(url: str) -> None:
    flow, seen = noting_flow()
    clock = ManualClock(START)
    app = Duly(url, flows=[flow], clock=clock, look_ahead_s=0)
    kinds: dict[str, Misfire] = {
        "latest": Misfire(),
        "none": Misfire("skip"),
        "some": Misfire("catch_up", limit=5),
    }
    async with app:
        for name, misfire in kinds.items():
            policies = Policies(misfire=misfire, grace_ms=0)
            await (
                schedules(app)
                .of(workspace("acme"))
                .create(name, cron("* * * * *"), action="note", input=name, policies=policies)
            )
        clock.advance(minutes=60, seconds=30)
        report = await app.planner().run_once()
        assert (report.planned, report.missed) == (6, 59 + 60 + 55)
        await app.planner().run_once()
        for _ in range(5):
            await drain(app)
            clock.advance(seconds=1)
        assert sorted(seen) == ["latest", *["some"] * 5]


@in_loop
async def test_an_application_runs_its_schedules(url: str) -> None:
    flow = Flow("work")
    began = asyncio.Event()

    @flow.action(name="note")
    async def note(ctx: Context) -> None:
        began.set()

    app = Duly(url, flows=[flow])
    quick = WorkerOptions(quick_poll_s=0.02)
    async with app.running(worker=quick, planner=PlannerOptions(period_s=0.05)):
        made = await schedules(app).of(SYSTEM).create("tick", every(seconds=1), action="note")
        await began.wait()
        (first, *_) = reversed(await app.store.list_occurrences(made.id))
        assert (first.fired_at_ms or 0) >= first.run_at_ms


@in_loop
async def test_without_a_planner_nothing_is_planned() -> None:
    flow, _ = noting_flow()
    app, store = open_app("memory:", flow)
    async with app.running(planner=False, keeper=False):
        await store.until("claim_jobs")
    assert store.count("plan_occurrences") == 0


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        (["--port", "0"], (True, True, True, 1)),
        (["--roles", "worker, keeper"], (True, True, False, 0)),
        (["--roles", "planner"], (False, False, True, 0)),
        (["--roles", "api", "--port", "0"], (False, False, False, 1)),
    ],
)
def test_the_command_runs_the_roles_it_is_given(
    options: list[str], roles: tuple[bool, bool, bool, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def serve(
        _app: Duly, worker: object, keeper: object, planner: object, *others: object
    ) -> None:
        asked.append((bool(worker), keeper, planner, len(others)))

    module = ModuleType("planned_app")
    module.__dict__["app"] = Duly("memory:")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Duly, "serve", serve)
    result = CliRunner().invoke(main, ["run", "planned_app:app", *options])
    assert (result.exit_code, asked) == (0, [roles]), result.output


def test_unknown_roles_are_refused() -> None:
    result = CliRunner().invoke(main, ["run", "planned_app:app", "--roles", "planer"])
    assert (result.exit_code, "'planer'; known: planner" in result.output) == (2, True)


@in_loop
async def test_flows_of_others_are_left_alone() -> None:
    """Their definitions may be in another application, or in a newer release only."""
    flow, _ = noting_flow()
    app = Duly("memory:", flows=[flow], clock=ManualClock(START))
    async with app:
        rule = trigger_text(cron("* * * * *"))
        foreign = IndexRow(
            ScheduleId("x"),
            "elsewhere",
            "system",
            "x",
            rule,
            START_MS - 1,
            START_MS - 1,
            hand_over="jobs",
        )
        await app.store.upsert(foreign)
        assert (await app.planner().run_once()).rows == 0
        assert await app.store.list_rows() == [foreign]
        told = app.planner(PlannerOptions(flows=("elsewhere",)))
        assert (await told.run_once()).quarantined == 1


@in_loop
async def test_a_round_drains_what_is_due() -> None:
    flow, _ = noting_flow()
    clock = ManualClock(START)
    app, store = open_app("memory:", flow, clock=clock)
    async with app:
        for number in range(25):
            await schedules(app).of(SYSTEM).create(f"{number}", cron("0 * * * *"), action="note")
        clock.advance(hours=1)
        report = await app.planner(PlannerOptions(limit=10)).run_once()
        assert (report.rows, report.planned) == (25, 25)
        assert report.next_run_at_ms == START_MS + 2 * 3_600_000
        assert [answer.rows for _, _, answer in store.calls if isinstance(answer, PlanReport)] == [
            10,
            10,
            5,
        ]


@in_loop
async def test_a_row_with_more_times_than_a_plan_holds_is_drained() -> None:
    flow, _ = noting_flow()
    clock = ManualClock(START)
    app = Duly("memory:", flows=[flow], clock=clock, look_ahead_s=0)
    patient = Policies(grace_ms=24 * 3_600_000, overlap="allow")
    times = 2 * MAX_PLANNED + 5
    async with app:
        await (
            schedules(app)
            .of(SYSTEM)
            .create("tick", every(seconds=1), action="note", policies=patient)
        )
        clock.advance(seconds=times)
        report = await app.planner().run_once()
        assert (report.rows, report.planned) == (3, times)


@in_loop
async def test_the_look_ahead_is_in_seconds() -> None:
    flow, _ = noting_flow()
    app = Duly("memory:", flows=[flow], clock=ManualClock(START), look_ahead_s=0)
    async with app:
        made = await schedules(app).of(SYSTEM).create("tick", every(seconds=10), action="note")
        report = await app.planner(PlannerOptions(look_ahead_s=25)).run_once()
        jobs = await app.store.list_jobs(JobFilter(schedule_id=made.id))
        assert {(job.state, job.run_at_ms - START_MS) for job in jobs} == {
            (JobState.SCHEDULED, 10_000),
            (JobState.SCHEDULED, 20_000),
        }
        assert report.next_run_at_ms == START_MS + 30_000


class Answering:
    """A store that answers each planning step by a function of the step's number."""

    capabilities = Capabilities(
        joins_transaction=False, many_processes=False, has_clock=False, notifies=False
    )

    def __init__(self, answer: Callable[[int], PlanReport]) -> None:
        self.answer = answer
        self.steps = 0
        self.requests: list[PlanRequest] = []

    def listen(self, _wake: object) -> Callable[[], None]:
        return lambda: None

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        self.requests.append(request)
        self.steps += 1
        return self.answer(self.steps)


@in_loop
async def test_a_round_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = Answering(lambda _: PlanReport(rows=7, planned=7))
    monkeypatch.setattr(planner_module, "_ROUND_S", 0.0)
    report = await Planner(store, PlannerOptions(limit=7)).run_once()
    assert (store.steps, report.rows) == (1, 7)


@in_loop
async def test_stopping_ends_a_round_after_its_step() -> None:
    def answer(step: int) -> PlanReport:
        if step == 3:
            planner.stop()
        return PlanReport(rows=7)

    store: Any = Answering(answer)
    planner = Planner(store, PlannerOptions(limit=7))
    await planner.run()
    assert store.steps == 3


@pytest.mark.parametrize(
    ("due_in_ms", "pause_s"),
    [
        (None, 1.0),
        (60_000, 1.0),
        (1_250, 0.75),
        (1_001, 0.501),
        # Held by another planner, or of a newer release: retrying at once would not help.
        (1_000, 1.0),
        (-5_000, 1.0),
    ],
)
def test_it_waits_for_the_next_row_at_most_its_period(
    due_in_ms: int | None, pause_s: float
) -> None:
    async def pause() -> float:
        store: Any = Answering(lambda _: PlanReport())
        planner = Planner(store, PlannerOptions(period_s=1.0, look_ahead_s=1.0))
        due_ms = None if due_in_ms is None else START_MS + due_in_ms
        return planner._pause_s(PlanReport(next_run_at_ms=due_ms, now_ms=START_MS))

    assert asyncio.run(pause()) == pause_s


@in_loop
async def test_it_wakes_when_a_row_is_due() -> None:
    """With a period of an hour, only the time of the row can have woken it."""
    flow, _ = noting_flow()
    app, store = open_app("memory:", flow, look_ahead_s=0)
    async with app:
        made = await schedules(app).of(SYSTEM).create("tick", every(seconds=1), action="note")
        planner = app.planner(PlannerOptions(period_s=FOREVER_S))
        running = asyncio.create_task(planner.run())
        while not (jobs := await app.store.list_jobs(JobFilter(schedule_id=made.id))):
            await store.until("plan_occurrences")
        planner.stop()
        await running
    assert (
        0
        <= jobs[0].created_at_ms - jobs[0].run_at_ms
        < timedelta(seconds=5) // timedelta(milliseconds=1)
    )


@in_loop
async def test_it_looks_again_after_its_period() -> None:
    app, store = open_app("memory:", Flow("work"))
    async with app:
        planner = app.planner(PlannerOptions(period_s=0.01))
        running = asyncio.create_task(planner.run())
        await store.until("plan_occurrences", 3)
        planner.stop()
        await running


@in_loop
async def test_a_planner_survives_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    app, store = open_app("memory:", Flow("work"))
    store.fail("plan_occurrences", 2)
    async with app:
        planner = app.planner(PlannerOptions(period_s=0.01))
        running = asyncio.create_task(planner.run())
        await store.until("plan_occurrences", 2)
        planner.stop()
        await running
    assert [record.getMessage() for record in caplog.records] == ["planner: planted"] * 2


@in_loop
async def test_quarantined_rows_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    store: Any = Answering(lambda _: PlanReport(rows=2, quarantined=2))
    with caplog.at_level(logging.WARNING):
        await Planner(store).run_once()
    (record,) = caplog.records
    assert record.getMessage() == "planner: 2 rows were quarantined"


@in_loop
async def test_a_planner_stops_while_it_waits() -> None:
    app, store = open_app("memory:", Flow("work"))
    async with app:
        planner = app.planner(PlannerOptions(period_s=FOREVER_S))
        running = asyncio.create_task(planner.run())
        await store.until("plan_occurrences")
        planner.stop()
        await running


@in_loop
async def test_schedules_written_inside_the_look_ahead_are_on_time() -> None:
    """No planner runs; the write itself makes the job."""
    flow, _ = noting_flow()
    app = Duly("memory:", flows=[flow], clock=ManualClock(START))
    async with app:
        soon = await schedules(app).of(SYSTEM).create("soon", once(START + A_MINUTE), action="note")
        late = START + A_MINUTE + timedelta(milliseconds=1)
        later = await schedules(app).of(SYSTEM).create("later", once(late), action="note")
        (job,) = await app.store.list_jobs(JobFilter(schedule_id=soon.id))
        assert (job.state, job.run_at_ms) == (JobState.SCHEDULED, START_MS + 60_000)
        assert await app.store.list_jobs(JobFilter(schedule_id=later.id)) == []


@in_loop
async def test_jobs_take_from_the_action_what_the_schedule_leaves_open() -> None:
    flow = Flow("work")

    @flow.action(queue="mail", timeout_s=7, retry=RetryPolicy(attempts=9))
    async def note() -> None: ...

    app = Duly("memory:", flows=[flow], clock=ManualClock(START))
    own = Policies(timeout_ms=1_234, retry=RetryPolicy(attempts=2))
    async with app:
        for name, policies in (("usual", Policies()), ("own", own)):
            await (
                schedules(app)
                .of(SYSTEM)
                .create(name, once(START + A_MINUTE), action="note", policies=policies)
            )
        jobs = await app.store.list_jobs(JobFilter(queue="mail"))
    assert sorted((job.timeout_ms, job.max_attempts) for job in jobs) == [(1_234, 2), (7_000, 9)]
