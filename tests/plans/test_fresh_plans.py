"""Plans on tables never analysed, as after a first burst: a step examines only rows it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql

from duly import cron
from duly.model.claims import ClaimRequest
from duly.model.index_rows import trigger_text
from duly.model.jobs import JobId, NewJob, WorkerId
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.rules.outcomes import Succeeded, decide
from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from duly.triggers import every
from duly.triggers.instants import from_ms
from tests.plans.explained import Verb, examined, plans_of
from tests.rows import NOON_MS, fill
from tests.servers import PostgresServer

pytestmark = pytest.mark.extended

DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
MANY = 40_000
LIMIT = 1_000
WORKER = WorkerId("worker_fresh")


async def _fill(url: str) -> None:
    """Store a burst of due rows, due jobs and ended jobs."""
    await fill(url, MANY, DAILY)
    store = cast(SqlStore, open_store(url, clock=ManualClock(from_ms(NOON_MS))))
    for start in range(0, MANY, 10_000):
        numbers = range(start, start + 10_000)
        await store.insert_jobs([a_job(f"job_a{n:09}") for n in numbers])
        later = [a_job(f"job_b{n:09}", queue="later", run_at_ms=NOON_MS + n) for n in numbers]
        await store.insert_jobs(later)
    for _ in range(MANY // LIMIT // 2):
        claims = await store.claim_jobs(ClaimRequest(worker=WORKER, limit=LIMIT))
        await store.finish([decide(job, Succeeded()) for job in claims.jobs])
    await store.close()


def a_job(name: str, **fields: Any) -> NewJob:
    return NewJob(id=JobId(name), action="mail.send", **fields)


@pytest.fixture(scope="module")
def fresh_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create()
    asyncio.run(_fill(url))
    yield url
    postgres_server.drop(url)


STEPS: dict[str, Verb] = {
    "claim": lambda store: store.claim_jobs(ClaimRequest(worker=WORKER, limit=LIMIT)),
    "fair claim": lambda store: store.claim_jobs(
        ClaimRequest(worker=WORKER, limit=LIMIT, fair=True, token_batch=LIMIT)
    ),
    "promote": lambda store: store.promote_due(LIMIT),
    "claim rows": lambda store: store.claim_due(NOON_MS, LIMIT),
    "plan": lambda store: store.plan_occurrences(PlanRequest(limit=LIMIT)),
    "list rows": lambda store: store.list_rows(limit=LIMIT),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_examine_what_they_take(fresh_url: str, name: str) -> None:
    plans = plans_of(fresh_url, STEPS[name])
    assert plans
    for plan in plans:
        # An index still has an entry for each earlier position of a row that was moved.
        assert examined(plan) <= 3 * LIMIT, plan


def _write(number: int, action: str = "send") -> ScheduleWrite:
    definition = Definition(every(days=365), action, hand_over="http")
    return ScheduleWrite(
        ScheduleKey("bulk", f"user:{number}", "digest"), ScheduleId(f"sch_{number:05}"), definition
    )


def test_rows_are_looked_up_one_by_one_where_the_server_expects_none(postgres_url: str) -> None:
    """Tables analysed while empty do not lead to a nested loop over all pairs of rows.

    UPDATE statements still do until the next ANALYZE: 0.15 ms per row for a thousand rows.
    """

    async def put(writes: list[ScheduleWrite]) -> None:
        store = open_store(postgres_url)
        await store.put_schedules(writes)
        await store.close()

    writes = [_write(number) for number in range(LIMIT)]
    asyncio.run(put(writes))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("duly_schedule_index", "duly_schedule_rules", "duly_resources"):
            for statement in ("DELETE FROM {}", "ANALYZE {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(table)))
    asyncio.run(put(writes))
    again = [_write(number, "remind") for number in range(LIMIT)]
    verbs: list[Verb] = [
        lambda store: store.list_rows(limit=LIMIT),
        lambda store: store.put_schedules(again),
    ]
    for verb in verbs:
        plans = [plan for plan in plans_of(postgres_url, verb) if not plan.startswith("UPDATE")]
        assert plans
        for plan in plans:
            assert examined(plan) <= 4 * LIMIT, plan
