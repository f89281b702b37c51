"""Plans of frequent operator reads: the cost does not depend on the number of jobs or schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from sqlalchemy import insert

from duly import cron
from duly.model.claims import ClaimRequest
from duly.model.index_rows import trigger_text
from duly.model.jobs import JobId, NewJob, WorkerId
from duly.operate.admin import Admin
from duly.rules.outcomes import Succeeded, decide
from duly.stores import open_store
from duly.stores.sql.bulk import insert_all
from duly.stores.sql.db import Db
from duly.stores.sql.store import SqlStore
from tests.plans.explained import BACKENDS, Plans, Steps, examined, scans
from tests.rows import NOON_MS, fill
from tests.servers import PostgresServer

pytestmark = pytest.mark.extended

DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
SIZES = (12_000, 36_000)
"""Both exceed every limit up to which a read counts."""
GROWTH = 1.1
FUTURE_MS = 4_000_000_000_000
SMALL = ("duly_schema", "duly_queues", "duly_workers", "duly_ledger_counts", "duly_occurrences")
Ask = Callable[[Admin], Awaitable[object]]
ASKS: dict[str, Ask] = {
    "queues": lambda admin: admin.queues(),
    "few of queues": lambda admin: admin.queues(most=1_000),
    "health": lambda admin: admin.health(),
    "states": lambda admin: admin.monitoring.states(),
}


def _documents(db: Db, count: int) -> None:
    rows = [
        {
            "collection": "products",
            "scope": f"user:{number}",
            "name": f"{number:06}",
            "id": f"{number:06}",
            "version": 1,
            "body": "{}",
            "created_at_ms": NOON_MS,
            "updated_at_ms": NOON_MS,
        }
        for number in range(count)
    ]
    insert_all(db, db.tables.resources, rows)


async def _fill(url: str, count: int) -> None:
    """Store `count` each of due rows, documents, queued and scheduled jobs, and some ended jobs."""
    await fill(url, count, DAILY)
    store = cast(SqlStore, open_store(url))
    await store._run(_documents, count)
    for start in range(0, count, 4_000):
        numbers = range(start, start + 4_000)
        await store.insert_jobs([_job(f"job_a{n:09}") for n in numbers])
        later = [_job(f"job_b{n:09}", queue="later", run_at_ms=FUTURE_MS + n) for n in numbers]
        await store.insert_jobs(later)
    for _ in range(2):
        claims = await store.claim_jobs(ClaimRequest(worker=WorkerId("worker_a"), limit=1_000))
        await store.finish([decide(job, Succeeded()) for job in claims.jobs])
    dead = {"state": "dead", "at_ms": NOON_MS, "jobs": 10, "ids": '["gone"]'}
    marks = [dead | {"at_ms": NOON_MS + number} for number in range(count)]
    await store._run(lambda db: db.connection.execute(insert(db.tables.job_marks), marks))
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    await store.close()


def _job(name: str, **fields: Any) -> NewJob:
    return NewJob(id=JobId(name), action="mail.send", **fields)


@pytest.fixture(scope="module", params=BACKENDS)
def urls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("bounded")
        made = [f"sqlite:///{folder}/{size}.db" for size in SIZES]
        for url, size in zip(made, SIZES, strict=True):
            asyncio.run(_fill(url, size))
        yield made
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    made = [server.create() for _ in SIZES]
    for url, size in zip(made, SIZES, strict=True):
        asyncio.run(_fill(url, size))
    yield made
    for url in made:
        server.drop(url)


@pytest.mark.parametrize("ask", ASKS)
def test_reads_do_not_grow_with_what_is_stored(urls: list[str], ask: str) -> None:
    few, many = (asyncio.run(_read(url, ASKS[ask])) for url in urls)
    assert 0 < many <= GROWTH * few


async def _read(url: str, ask: Ask) -> int:
    """Return the rows that statements read, or on SQLite the steps that they take."""
    store = cast(SqlStore, open_store(url))
    await store.now_ms()
    if url.startswith("sqlite"):
        steps = Steps(store)
        await ask(Admin(store))
        await store.close()
        return steps.taken
    plans = Plans(store._engine)
    await ask(Admin(store))
    await store.close()
    for plan in plans.found:
        assert scans(plan, *SMALL) == [], plan
    return sum(examined(plan) for plan in plans.found)
