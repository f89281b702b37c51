"""Requirements of the document on many planners that no other test covers, on real databases."""

import asyncio
import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest
from duly.model.index_rows import trigger_text
from duly.model.jobs import JobId, LeasedJob, NewJob, WorkerId
from duly.model.plans import PlanRequest, PlanSettings
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.rules.outcomes import Succeeded, decide
from duly.runtime import PlannerOptions
from duly.stores import open_store
from duly.stores.port import Store
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from duly.testing.conformance.suite import START
from duly.triggers import Trigger, cron, every, once
from duly.triggers.instants import from_ms, to_ms
from tests.integration.working import enqueue, in_loop, open_app, working
from tests.plans.explained import Plans
from tests.rows import NOON_MS, fill

ROOT = Path(__file__).parent.parent.parent
WORKER = WorkerId("worker_a")
DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
START_MS = to_ms(START)
SOON = START + timedelta(minutes=1)
MANY = 10_000
AHEAD_MS = 120_000


@pytest.fixture(params=["sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/work.db"
    return str(request.getfixturevalue("postgres_url"))


def engine_of(url: str) -> Engine:
    """Return an engine for the tables that is independent of the store."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    made = parsed if is_file else parsed.set(drivername="postgresql+psycopg")
    return create_engine(made, poolclass=NullPool)


def opened(url: str, clock: ManualClock) -> SqlStore:
    """Open a store whose writes plan nothing."""
    return cast(SqlStore, open_store(url, clock=clock, planning=PlanSettings(look_ahead_ms=0)))


async def put(store: Store, triggers: list[Trigger]) -> None:
    """Store schedules, each in a different workspace."""
    writes = [
        ScheduleWrite(
            ScheduleKey("work", f"workspace:{number}", "digest"),
            ScheduleId(f"sch_{number:05}"),
            Definition(trigger, "note"),
        )
        for number, trigger in enumerate(triggers)
    ]
    for first in range(0, len(writes), 1_000):
        await store.put_schedules(writes[first : first + 1_000])


async def run_due(store: Store) -> list[LeasedJob]:
    """Claim and finish all due jobs; return them."""
    ran: list[LeasedJob] = []
    while jobs := (await store.claim_jobs(ClaimRequest(worker=WORKER, limit=500))).jobs:
        await store.finish([decide(job, Succeeded()) for job in jobs])
        ran += jobs
    return ran


def statements_of(store: SqlStore) -> list[tuple[str, Any]]:
    """Return a list that records every statement the store executes from now on."""
    said: list[tuple[str, Any]] = []

    def note(_c: object, _k: object, statement: str, parameters: Any, *_: object) -> None:
        said.append((statement, parameters))

    event.listen(store._engine, "before_cursor_execute", note)
    return said


def test_ten_thousand_workspaces_run_their_schedules(tmp_path: Path) -> None:
    async def check() -> None:
        clock = ManualClock(START)
        store = opened(f"sqlite:///{tmp_path}/many.db", clock)
        await put(store, [once(SOON)] * MANY)
        clock.set(SOON)
        planned = [(await store.plan_occurrences(PlanRequest())).planned for _ in range(11)]
        assert planned == [*[1_000] * 10, 0]
        ran = await run_due(store)
        assert sorted(job.workspace for job in ran) == sorted(map(str, range(MANY)))
        await store.close()

    asyncio.run(check())


def test_planner_examines_what_is_due(postgres_url: str) -> None:
    """40 of 10,000 rows are due."""
    asyncio.run(fill(postgres_url, 40, DAILY, waiting=MANY - 40))

    async def check() -> str:
        store = opened(postgres_url, ManualClock(from_ms(NOON_MS - AHEAD_MS)))
        with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE duly_schedule_index")
        plans = Plans(store._engine, "duly_schedule_index")
        request = PlanRequest(look_ahead_ms=AHEAD_MS, flows=("bulk",))
        assert (await store.plan_occurrences(request)).rows == 40
        await store.close()
        return next(plan for plan in plans.found if "SKIP LOCKED" in plan)

    plan = asyncio.run(check())
    assert "Index Scan using duly_schedule_index_due" in plan, plan
    assert "Rows Removed" not in plan, plan
    steps = re.findall(r"(LockRows|Index Scan|Limit) .*actual time=\S+ rows=([\d.]+)", plan)
    assert {(name, float(rows)) for name, rows in steps} == {
        ("Limit", 40),
        ("LockRows", 40),
        ("Index Scan", 40),
    }, plan


def test_claim_reads_no_schedule(any_url: str) -> None:
    """Planning writes into the job everything that it needs to run."""

    async def check() -> list[str]:
        clock = ManualClock(START)
        store = opened(any_url, clock)
        await put(store, [once(SOON)])
        await store.plan_occurrences(PlanRequest(look_ahead_ms=AHEAD_MS))
        clock.set(SOON)
        said = statements_of(store)
        (job,) = (await store.claim_jobs(ClaimRequest(worker=WORKER))).jobs
        await store.finish([decide(job, Succeeded())])
        await store.close()
        return [statement for statement, _ in said]

    said = asyncio.run(check())
    assert any("duly_jobs" in each for each in said)
    assert not [each for each in said if "duly_schedule" in each or "duly_resources" in each]


def test_key_columns_are_not_nullable(any_url: str) -> None:
    """No column of a key is nullable, since two nulls compare as different."""
    asyncio.run(open_store(any_url).close())
    keys = {
        "occurrences": ["schedule_id", "nominal_ms"],
        "resources": ["collection", "scope", "name"],
    }
    seen = inspect(engine_of(any_url))
    for table, key in keys.items():
        assert seen.get_pk_constraint(f"duly_{table}")["constrained_columns"] == key
        nullable = {each["name"]: each["nullable"] for each in seen.get_columns(f"duly_{table}")}
        assert not any(nullable[name] for name in key)


def test_tables(any_url: str) -> None:
    """Attempts are job events; a schedule has a definition, a rule and a row."""
    asyncio.run(open_store(any_url).close())
    found = set(inspect(engine_of(any_url)).get_table_names())
    wanted = "schema jobs job_events workers locks resources schedule_rules schedule_index"
    assert {f"duly_{name}" for name in wanted.split()} <= found


def test_due_jobs_come_ten_at_a_time(any_url: str) -> None:
    async def check() -> None:
        clock = ManualClock(START)
        store = opened(any_url, clock)
        jobs = [
            NewJob(id=JobId(f"job_{99 - number}"), action="a.b", run_at_ms=START_MS + number)
            for number in range(1, 26)
        ]
        await store.insert_jobs(jobs)
        clock.advance(seconds=1)
        request = ClaimRequest(worker=WORKER, limit=10)
        claims = [[job.id for job in (await store.claim_jobs(request)).jobs] for _ in range(4)]
        assert [len(each) for each in claims] == [10, 10, 5, 0]
        assert [name for each in claims for name in each] == [job.id for job in jobs]
        await store.close()

    asyncio.run(check())


@in_loop
async def test_planner_does_one_round_at_a_time() -> None:
    app, store = open_app("memory:", Flow("work"))
    at_work, most = 0, 0

    async def begin(*_: object) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _turn in range(100):  # far longer than the period
            await asyncio.sleep(0)

    async def end(_answer: object) -> None:
        nonlocal at_work
        at_work -= 1

    store.before["plan_occurrences"], store.after["plan_occurrences"] = begin, end
    async with app:
        planner = app.planner(PlannerOptions(period_s=0))
        running = asyncio.create_task(planner.run())
        await store.until("plan_occurrences", 5)
        planner.stop()
        await running
    assert most == 1


@in_loop
async def test_two_workers_run_jobs_concurrently(emptied_url: str) -> None:
    """Two workers with one slot each run two jobs concurrently, each with its own store."""
    begun, go = asyncio.Semaphore(0), asyncio.Event()
    flow = Flow("work")

    @flow.action
    async def slow(ctx: Context) -> None:
        begun.release()
        await go.wait()

    (first, store), (second, _) = (open_app(emptied_url, flow) for _ in range(2))
    async with first, second, working(first, slots=1), working(second, slots=1):
        ids = []
        for _ in range(2):
            ids += await enqueue(first, slow, [None])
            await begun.acquire()
        running = [await store.store.get_job(each) for each in ids]
        assert len({job.worker for job in running if job is not None}) == 2
        go.set()
        await store.ended(*ids)


@in_loop
async def test_schedules_need_no_tasks() -> None:
    """A running application has no task for each of its schedules."""
    app, store = open_app("memory:", Flow("work"), look_ahead_s=0)
    tasks = []
    async with app.running(planner=PlannerOptions(period_s=0.01)):
        for _ in range(2):
            await store.until("plan_occurrences", 2)
            tasks.append(len(asyncio.all_tasks()))
            await put(app.store, [every(hours=1)] * 200)
    assert tasks[1] < tasks[0] + 100


def test_database_is_the_only_coordinator() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    needed = [each for part in (project["dependencies"], *extras) for each in part]
    assert len(needed) >= 10
    assert not re.findall(r"redis|valkey|kazoo|etcd|consul|memcache|kafka|amqp|pika", str(needed))


def test_no_lock_outlives_its_transaction(emptied_url: str) -> None:
    """Behind a pooler, the next transaction may use another connection."""

    async def check() -> list[str]:
        clock = ManualClock(START)
        store = opened(emptied_url, clock)
        said = statements_of(store)
        await put(store, [once(SOON)])
        clock.set(SOON)
        await store.claim_due(claim_id="one", flow="nobody")
        await store.plan_occurrences(PlanRequest())
        await run_due(store)
        await store.release_expired()
        await store.close()
        return [statement for statement, _ in said]

    said = asyncio.run(check())
    assert any("pg_advisory_xact_lock" in each for each in said)
    assert not [each for each in said if re.search(r"pg_(try_)?advisory_lock", each)]
