"""Plans of job verbs: with 100,000 jobs waiting, each examines what it takes and no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, event

from duly.job_store import ClaimRequest, Retention
from duly.jobs import JobId, NewJob, WorkerId
from duly.outcomes import Succeeded, decide
from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from tests.servers import PostgresServer

WAITING = 100_000
PAIRS = 50
BATCH = 500
WORKER = WorkerId("worker_plan")
FUTURE_MS = 4_000_000_000_000
Verb = Callable[[SqlStore], Awaitable[object]]

REQUEST = ClaimRequest(worker=WORKER, limit=20, careful_limit=5, actions=("mail.send",))
FAIR = ClaimRequest(worker=WORKER, limit=20, fair=True, tokens=3, token_batch=5)


async def fill(url: str) -> None:
    """Jobs that wait, jobs that are due later, jobs that run and jobs that ended."""
    store = cast(SqlStore, open_store(url))
    for start in range(0, WAITING, 10_000):
        await store.insert_jobs([_job(number) for number in range(start, start + 10_000)])
    later = [_job(WAITING + number, run_at_ms=FUTURE_MS) for number in range(10_000)]
    await store.insert_jobs(later)
    for _ in range(8):
        claims = await store.claim_jobs(ClaimRequest(worker=WORKER, limit=BATCH))
        await store.finish([decide(job, Succeeded()) for job in claims.jobs])
    await store.claim_jobs(ClaimRequest(worker=WORKER, limit=BATCH))
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    await store.close()


def _job(number: int, **fields: Any) -> NewJob:
    workspace = f"space-{number % PAIRS:03}"
    name = JobId(f"job_{number:09}")
    return NewJob(id=name, action="mail.send", workspace=workspace, **fields)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        file: Path = tmp_path_factory.mktemp("plans") / "jobs.db"
        asyncio.run(fill(f"sqlite:///{file}"))
        yield f"sqlite:///{file}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    made = server.create()
    asyncio.run(fill(made))
    yield made
    server.drop(made)


class Plans:
    """Plans of the statements that touch jobs, asked for just before each runs."""

    def __init__(self, engine: Engine) -> None:
        self.found: list[str] = []
        self._is_postgres = engine.dialect.name == "postgresql"
        event.listen(engine, "before_cursor_execute", self._explain)

    def _explain(
        self,
        connection: Connection,
        _cursor: object,
        statement: str,
        parameters: Any,
        _context: object,
        executemany: bool,
    ) -> None:
        if executemany or "duly_jobs" not in statement or statement.startswith("EXPLAIN"):
            return
        how = "EXPLAIN (ANALYZE, BUFFERS OFF)" if self._is_postgres else "EXPLAIN QUERY PLAN"
        nested = connection.begin_nested()  # PostgreSQL runs what it explains
        rows = connection.exec_driver_sql(f"{how} {statement}", parameters)
        self.found.append(
            "\n".join(str(row[-1] if not self._is_postgres else row[0]) for row in rows)
        )
        nested.rollback()


def examined(plan: str) -> int:
    """The most rows that one step of a PostgreSQL plan read from jobs, also in vain."""
    steps = re.findall(r"on duly_jobs.*?rows=([\d.]+) loops=(\d+)", plan.replace("actual ", ""))
    vain = re.findall(r"Rows Removed by \w+: (\d+)", plan)
    read = [float(rows) * int(loops) for rows, loops in steps] + [float(each) for each in vain]
    return int(max(read, default=0))


def plans_of(url: str, verb: Verb) -> list[str]:
    async def run() -> list[str]:
        store = cast(SqlStore, open_store(url))
        await store.now_ms()
        plans = Plans(store._engine)
        await verb(store)
        await store.close()
        return plans.found

    return asyncio.run(run())


async def _claim_and_finish(store: SqlStore) -> None:
    claims = await store.claim_jobs(REQUEST)
    await store.renew(WORKER, [(job.id, job.fence) for job in claims.jobs], 30_000)
    await store.finish([decide(job, Succeeded()) for job in claims.jobs])


VERBS: dict[str, tuple[Verb, int]] = {
    "claim, renew, finish": (_claim_and_finish, 40),
    "fair claim": (lambda store: store.claim_jobs(FAIR), PAIRS * 2),
    "nothing to claim": (
        lambda store: store.claim_jobs(ClaimRequest(worker=WORKER, queues=("other",))),
        2,
    ),
    # Of what a batch ended together, the order is by id, so the batch is read.
    "rescue": (lambda store: store.release_expired(10), BATCH + 20),
    "promote": (lambda store: store.promote_due(10), 20),
    "prune": (lambda store: store.prune(Retention(succeeded_ms=0), 10), BATCH + 20),
    "one job": (lambda store: store.get_job(JobId("job_000000001")), 1),
}


@pytest.mark.parametrize("name", VERBS)
def test_verbs_examine_what_they_take(url: str, name: str) -> None:
    verb, most = VERBS[name]
    plans = plans_of(url, verb)
    assert plans
    for plan in plans:
        if url.startswith("sqlite"):
            scans = [line for line in plan.split("\n") if re.match(r"SCAN (duly_jobs|j)\b", line)]
            assert all("USING" in line for line in scans), plan
        else:
            assert "Seq Scan on duly_jobs" not in plan, plan
            assert examined(plan) <= most, plan
