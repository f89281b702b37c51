"""Plans of every flow filter and hand-over: each verb reads its due rows and no others.

Most rows belong to another flow and hand-over, as in a database that several applications share.
Rows are counted in analysed tables and in tables never analysed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import cast, get_args

import pytest

from duly import cron
from duly.engine.ids import new_id
from duly.model.dispatches import DispatchClaim
from duly.model.index_rows import trigger_text
from duly.model.plans import PlanRequest
from duly.model.schedules import HandOver
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.rows.index_rows import insert
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from duly.triggers.instants import from_ms
from tests.plans.explained import BACKENDS, Plans, Steps, examined
from tests.rows import LATER_MS, NOON_MS, rows
from tests.servers import PostgresServer

pytestmark = pytest.mark.extended

DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
HAND_OVERS: tuple[HandOver, ...] = get_args(HandOver)
MANY = 6_000
RARE = tuple(f"rare-{n:02}" for n in range(50))
LIMIT = 20
ROWS = 8 * (LIMIT + len(RARE))
"""Rows that one statement may read: a few for each row taken and for each flow."""
STEPS = 250 * (LIMIT + 3 * len(RARE))
"""Steps of SQLite's virtual machine that a verb may take. Reading MANY rows takes more."""
FLOWS: dict[str, tuple[str, ...] | None] = {
    "one": RARE[:1],
    "two": RARE[:2],
    "fifty": RARE,
    "rare and bulk": ("bulk", *RARE[:1]),
    "all": None,
    "unknown": ("nobody",),
}
Ask = Callable[[SqlStore, tuple[str, ...] | None], Awaitable[object]]
ASKS: dict[str, Ask] = {
    "jobs": lambda store, flows: store.plan_occurrences(PlanRequest(limit=LIMIT, flows=flows)),
    "http": lambda store, flows: store.claim_dispatches(
        DispatchClaim(new_id("tick_"), limit=LIMIT, flows=flows)
    ),
    "any": lambda store, flows: store.claim_due(NOON_MS, LIMIT, flows[-1] if flows else None),
    "list": lambda store, flows: store.list_rows(flow=flows[-1] if flows else None, limit=LIMIT),
}


def _fill(db: Db) -> None:
    """Store many rows of one flow, and one due and one later row of many flows, per hand-over."""
    stored = []
    for by in HAND_OVERS:
        bulk = [
            *rows(MANY // 2, DAILY, NOON_MS - 1_000, f"due-{by}"),
            *rows(MANY // 2, DAILY, LATER_MS, f"wait-{by}"),
        ]
        stored += [replace(row, hand_over=by) for row in bulk]
        for flow in RARE:
            few = [
                *rows(1, DAILY, NOON_MS, f"{flow}-{by}"),
                *rows(1, DAILY, LATER_MS, f"{flow}+{by}"),
            ]
            stored += [replace(row, hand_over=by, flow=flow) for row in few]
    for start in range(0, len(stored), 5_000):
        insert(db, stored[start : start + 5_000])


def _open(url: str) -> SqlStore:
    return cast(SqlStore, open_store(url, clock=ManualClock(from_ms(NOON_MS))))


@pytest.fixture(
    scope="module", params=[(each, state) for each in BACKENDS for state in ("fresh", "analysed")]
)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    backend, state = request.param
    server: PostgresServer | None = None
    made = f"sqlite:///{tmp_path_factory.mktemp('lanes')}/lanes.db"
    if backend == "postgresql":
        server = request.getfixturevalue("postgres_server")
        made = server.create()
    asyncio.run(_prepare(made, state, backend))
    yield made
    if server is not None:
        server.drop(made)


async def _prepare(url: str, state: str, backend: str) -> None:
    store = _open(url)
    await store.now_ms()
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if backend == "postgresql":
            for table in ("schedule_index", "schedule_rules"):
                connection.exec_driver_sql(
                    f"ALTER TABLE duly_{table} SET (autovacuum_enabled = off)"
                )
    await store._run(_fill)
    if state == "analysed":
        with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")
    await store.close()


@pytest.mark.parametrize("flows", FLOWS)
@pytest.mark.parametrize("ask", ASKS)
def test_each_verb_reads_only_its_due_rows(url: str, ask: str, flows: str) -> None:
    if url.startswith("sqlite"):
        taken = asyncio.run(_steps(url, ASKS[ask], FLOWS[flows]))
        assert 0 < taken <= STEPS
        return
    plans = asyncio.run(_plans(url, ASKS[ask], FLOWS[flows]))
    # A tick that finds enough planned dispatches reads no index rows.
    assert plans or ask == "http"
    for plan in plans:
        assert examined(plan) <= ROWS, plan


async def _plans(url: str, ask: Ask, flows: tuple[str, ...] | None) -> list[str]:
    store = _open(url)
    await store.now_ms()
    plans = Plans(store._engine, "duly_schedule_index")
    await ask(store, flows)
    await store.close()
    return plans.found


async def _steps(url: str, ask: Ask, flows: tuple[str, ...] | None) -> int:
    store = _open(url)
    await store.now_ms()
    steps = Steps(store)
    await ask(store, flows)
    await store.close()
    return steps.taken
