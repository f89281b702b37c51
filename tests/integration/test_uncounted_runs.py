"""Schedules stored before runs were counted: the count comes from the index row or the ledger."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from duly.model.dispatches import Fired, Inactive
from duly.model.schedules import HandOver, Schedule
from duly.rules.outcomes import Succeeded
from duly.stores import open_store
from duly.stores.port import Store
from duly.testing import ManualClock
from duly.testing.conformance.dispatch.samples import fire
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.samples import next_hour
from duly.testing.conformance.samples import START_MS, a_definition, a_key, a_write, only_row, put
from duly.testing.conformance.suite import START
from tests.servers import PostgresServer

Step = Callable[[Store, ManualClock], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/duly.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create()


FORGET = "UPDATE duly_resources SET runs_had = NULL"
"""Sets the column as the migration leaves it."""


def run_sql(url: str, statement: str) -> None:
    """Run a statement on the database without the store."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    engine = create_engine(parsed if is_file else parsed.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def run_steps(url: str, before: Step, after: Step, statement: str = FORGET) -> None:
    """Run two steps on one store, with a statement in between."""

    async def run() -> None:
        clock = ManualClock(START)
        store = open_store(url, clock=clock)
        try:
            await before(store, clock)
            run_sql(url, statement)
            await after(store, clock)
        finally:
            await store.close()

    asyncio.run(run())


async def stored_schedule(store: Store) -> Schedule:
    schedule = await store.get_schedule(a_key())
    assert schedule is not None
    return schedule


def put_limited(hand_over: HandOver = "jobs", max_runs: int = 3, **fields: Any) -> Step:
    async def step(store: Store, clock: ManualClock) -> None:
        del clock
        definition = a_definition(hand_over=hand_over, max_runs=max_runs, **fields)
        await put(store, a_write(definition=definition))

    return step


async def ran_once(store: Store, clock: ManualClock) -> None:
    await put_limited()(store, clock)
    await next_hour(store, clock)
    await end(store, await claim_one(store), Succeeded())


def test_row_knows_the_count(url: str) -> None:
    async def after(store: Store, clock: ManualClock) -> None:
        await put_limited(max_runs=5)(store, clock)
        assert (await stored_schedule(store)).runs_had == 1
        assert (await only_row(store)).runs_left == 4

    run_steps(url, ran_once, after)


def test_planning_stores_the_count(url: str) -> None:
    async def after(store: Store, clock: ManualClock) -> None:
        await next_hour(store, clock)
        assert (await stored_schedule(store)).runs_had == 2

    run_steps(url, ran_once, after)


def test_reconcile_stores_the_count_of_a_lost_row(url: str) -> None:
    async def after(store: Store, clock: ManualClock) -> None:
        del clock
        await store.remove(a_key())
        assert (await store.reconcile()).added == 1
        assert (await stored_schedule(store)).runs_had == 1
        assert (await only_row(store)).runs_left == 2

    run_steps(url, ran_once, after)


def test_ledger_knows_the_count_of_the_paused(url: str) -> None:
    async def before(store: Store, clock: ManualClock) -> None:
        await ran_once(store, clock)
        await put_limited(enabled=False)(store, clock)

    async def after(store: Store, clock: ManualClock) -> None:
        await put_limited()(store, clock)
        assert (await stored_schedule(store)).runs_had == 1
        assert (await only_row(store)).runs_left == 2

    run_steps(url, before, after)


def test_ledger_knows_the_count_of_the_external(url: str) -> None:
    async def before(store: Store, clock: ManualClock) -> None:
        await put_limited("external")(store, clock)
        for number in range(2):
            await fire(store, f"j{number}", nominal_ms=START_MS + number)

    async def after(store: Store, clock: ManualClock) -> None:
        del clock
        assert isinstance(await fire(store, "j2", nominal_ms=START_MS + 2), Fired)
        assert (await stored_schedule(store)).runs_had == 3
        assert await fire(store, "j3", nominal_ms=START_MS + 3) == Inactive("finished")

    run_steps(url, before, after)


def test_runs_charged_by_the_previous_release_count(url: str) -> None:
    """It charges the row alone, also where the document has a count."""

    async def after(store: Store, clock: ManualClock) -> None:
        del clock
        assert (await stored_schedule(store)).runs_had == 1
        await store.reconcile()
        assert (await stored_schedule(store)).runs_had == 2
        assert (await only_row(store)).runs_left == 1

    run_steps(url, ran_once, after, "UPDATE duly_schedule_index SET runs_left = 1")
