"""Plans of upkeep: a step reads the rows of its page by their keys, however many there are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, event, text

from duly import cron
from duly.schedules import Definition, ScheduleId
from duly.store import ScheduleKey, ScheduleWrite
from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from duly.upkeep_store import LedgerRetention
from tests.servers import PostgresServer

SCHEDULES = 4_000
ROWS = 40_000
LIMIT = 50
MOST = 5 * LIMIT
"""Rows that one step of a plan may read: its page, and what stands beside each row of it."""
OLD_MS = 1_600_000_000_000
Verb = Callable[[SqlStore], Awaitable[object]]

# Columns that have no default, filled from the number of the row.
FILL = {
    "occurrences": (
        (
            "schedule_id, nominal_ms, flow, scope, name, run_at_ms, state, missed, row_version, "
            "position, at_ms, until_ms, times"
        ),
        (
            "'sch_' || {pad}, {old} + i * 1000, 'mail', 'user:' || (i % {schedules}), 'a', "
            "{old} + i * 1000, 'succeeded', 0, 0, 0, {old}, {old} + i * 1000, 1"
        ),
    ),
    "schedule_events": (
        "schedule_id, kind, at_ms, actor, detail",
        "'sch_' || {pad}, 'changed', {old} + i, 'user:' || (i % {schedules}), '{{}}'",
    ),
    "job_events": (
        "job_id, seq, at_ms, state, attempt",
        "'job_' || i, 1, {old}, 'queued', 0",
    ),
    "idempotency": (
        "workspace, action, idempotency_key, job_id, input_digest, expires_at_ms",
        "'user:' || (i % {schedules}), 'mail.send', 'k' || i, 'job_' || i, '', 4000000000000",
    ),
    "resources": (
        "collection, scope, name, id, version, body, created_at_ms, updated_at_ms",
        "'notes', 'user:' || (i % {schedules}), 'n' || i, 'doc_' || i, 1, '{{}}', {old}, {old}",
    ),
    "resource_index": (
        "collection, attribute, value, scope, name",
        "'notes', 'tag', 'v' || i, 'user:' || (i % {schedules}), 'n' || i",
    ),
}


async def fill(url: str) -> None:
    store = cast(SqlStore, open_store(url))
    zoned = Definition(cron("0 9 * * *", tz="Europe/Berlin"), "send")
    writes = [
        ScheduleWrite(ScheduleKey("mail", f"user:{n}", f"s{n}"), ScheduleId(f"sch_{n:04}"), zoned)
        for n in range(SCHEDULES)
    ]
    await store.put_schedules(writes)
    is_file = url.startswith("sqlite")
    pad = (
        f"printf('%04d', i % {SCHEDULES})" if is_file else f"lpad((i % {SCHEDULES})::text, 4, '0')"
    )
    with store._engine.begin() as connection:
        for table, (columns, values) in FILL.items():
            filled = values.format(pad=pad, old=OLD_MS, schedules=SCHEDULES)
            statement = (
                f"INSERT INTO duly_{table} ({columns}) WITH RECURSIVE n(i) AS "  # noqa: S608
                f"(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) SELECT {filled} FROM n"
            )
            connection.execute(text(statement.replace(":", r"\:")))
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    await store.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        file: Path = tmp_path_factory.mktemp("plans") / "upkeep.db"
        asyncio.run(fill(f"sqlite:///{file}"))
        yield f"sqlite:///{file}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    made = server.create()
    asyncio.run(fill(made))
    yield made
    server.drop(made)


class Plans:
    """Plans of all statements, asked for just before each runs."""

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
        word = statement.split(maxsplit=1)[0]
        if executemany or word not in ("SELECT", "DELETE", "UPDATE", "WITH"):
            return
        how = "EXPLAIN (ANALYZE, BUFFERS OFF)" if self._is_postgres else "EXPLAIN QUERY PLAN"
        nested = connection.begin_nested()  # PostgreSQL runs what it explains
        rows = connection.exec_driver_sql(f"{how} {statement}", parameters)
        plan = "\n".join(str(row[0] if self._is_postgres else row[-1]) for row in rows)
        self.found.append(f"{statement}\n{plan}")
        nested.rollback()


def examined(plan: str) -> int:
    """The most rows that one step of a PostgreSQL plan read, also in vain."""
    steps = re.findall(r" on duly_\w+.*?rows=([\d.]+) loops=(\d+)", plan.replace("actual ", ""))
    vain = re.findall(r"Rows Removed by \w+: (\d+)", plan)
    read = [float(rows) * int(loops) for rows, loops in steps] + [float(each) for each in vain]
    return int(max(read, default=0))


async def every_kind(store: SqlStore) -> None:
    """Two steps of each kind: what has more goes on, what has not makes way."""
    for kind in (
        "schedules",
        "index_rows",
        "documents",
        "jobs",
        "keys",
        "occurrences",
        "events",
        "job_events",
        "tokens",
    ):
        step = await store.erase("user:7", cursor=f"{kind}:[]", limit=LIMIT)
        if step.cursor is not None:
            await store.erase("user:7", cursor=step.cursor, limit=LIMIT)


async def both_halves(store: SqlStore) -> None:
    kept = LedgerRetention()
    for cursor in (None, "ledger:sch_0100", "events:20000"):
        await store.prune_ledger(kept, LIMIT, cursor)


VERBS: dict[str, Verb] = {
    "erase": every_kind,
    "prune_ledger": both_halves,
    "recompute_zones": lambda store: store.recompute_zones("2031a", limit=LIMIT, cursor="rows:9"),
}
SMALL = ("duly_schema", "duly_queue_tokens", "duly_jobs", "duly_running")
"""Tables that have no rows here, which are read as they are."""


@pytest.mark.parametrize("name", VERBS)
def test_steps_read_their_page(url: str, name: str) -> None:
    async def run() -> list[str]:
        store = cast(SqlStore, open_store(url))
        await store.now_ms()
        plans = Plans(store._engine)
        await VERBS[name](store)
        await store.close()
        return plans.found

    plans = asyncio.run(run())
    assert len(plans) >= 3
    for plan in plans:
        if url.startswith("sqlite"):
            scans = [line for line in plan.split("\n") if re.match(r"SCAN (duly_|[a-z]\b)", line)]
            bare = [line for line in scans if "USING" not in line and line.split()[1] not in SMALL]
            assert bare == [], plan
        else:
            whole = re.findall(r"Seq Scan on (duly_\w+)", plan)
            assert set(whole) <= set(SMALL), plan
            assert examined(plan) <= MOST, plan


def test_a_whole_table_would_be_noticed(url: str) -> None:
    if url.startswith("sqlite"):
        return
    plan = "Seq Scan on duly_occurrences (cost=0..9 rows=9) (actual rows=40000 loops=1)"
    assert examined(plan) > MOST
