"""Record the query plans of a store verb, on a database that is filled once per module."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, event

from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from tests.servers import PostgresServer

Verb = Callable[[SqlStore], Awaitable[object]]
Fill = Callable[[SqlStore], Awaitable[object]]
BACKENDS = ("sqlite", "postgresql")
_WORDS = ("SELECT", "DELETE", "UPDATE", "INSERT", "WITH")


def filled(
    request: pytest.FixtureRequest, folders: pytest.TempPathFactory, fill: Fill
) -> Iterator[str]:
    """Yield the URL of a filled and analysed database; the fixture's parameter is the backend."""
    if request.param == "sqlite":
        url = f"sqlite:///{folders.mktemp('plans')}/plans.db"
        asyncio.run(_fill(url, fill))
        yield url
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create()
    asyncio.run(_fill(url, fill))
    yield url
    server.drop(url)


# Completion markers of no jobs, in the future. There are so many that a scan would show in a plan.
_MARKS = """
    INSERT INTO duly_job_marks (state, at_ms, jobs, ids)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
    SELECT s.state, 4000000000000 + n.i, 0, '["gone"]' FROM n CROSS JOIN (
        SELECT 'processing' AS state UNION ALL SELECT 'succeeded' UNION ALL SELECT 'dead'
        UNION ALL SELECT 'cancelled' UNION ALL SELECT 'deleted') s
"""


async def _fill(url: str, fill: Fill) -> None:
    store = cast(SqlStore, open_store(url))
    await fill(store)
    with store._engine.begin() as connection:
        connection.exec_driver_sql(_MARKS)
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    await store.close()


class Plans:
    """The plans of the statements that name a table, explained just before each runs."""

    def __init__(self, engine: Engine, table: str = "duly_") -> None:
        self.found: list[str] = []
        self._table = table
        self._is_postgres = engine.dialect.name == "postgresql"
        if self._is_postgres:
            # Allow sequential scans, as behind a pooler, so that a missing index shows.
            engine.dispose()
            event.listen(engine, "connect", _allow_scans)
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
        if executemany or word not in _WORDS or self._table not in statement:
            return
        how = "EXPLAIN (ANALYZE, BUFFERS OFF)" if self._is_postgres else "EXPLAIN QUERY PLAN"
        nested = connection.begin_nested()  # EXPLAIN ANALYZE executes the statement
        rows = connection.exec_driver_sql(f"{how} {statement}", parameters)
        plan = "\n".join(str(row[0] if self._is_postgres else row[-1]) for row in rows)
        self.found.append(f"{statement}\n{plan}")
        nested.rollback()


def _allow_scans(connection: Any, _record: object) -> None:
    connection.execute("SET enable_seqscan = on")
    connection.commit()


class Steps:
    """Counts the steps that SQLite's virtual machine takes."""

    def __init__(self, store: SqlStore) -> None:
        self.taken = 0
        event.listen(store._engine, "before_cursor_execute", self._watch)

    def _watch(self, connection: Connection, *_: Any) -> None:
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(self._count, 10)

    def _count(self) -> int:
        self.taken += 10
        return 0


def plans_of(url: str, verb: Verb, table: str = "duly_") -> list[str]:
    """Return the plans of all statements of a verb."""

    async def run() -> list[str]:
        store = cast(SqlStore, open_store(url))
        await store.now_ms()
        plans = Plans(store._engine, table)
        await verb(store)
        await store.close()
        return plans.found

    return asyncio.run(run())


def examined(plan: str, table: str = "duly_") -> int:
    """Return the most rows that a node of a PostgreSQL plan read, including filtered rows."""
    read, loops = [0.0], 1
    for line in plan.replace("actual ", "").splitlines():
        step = re.search(r"rows=([\d.]+) loops=(\d+)", line)
        if step is not None:
            # The row count of a node is an average over its loops.
            loops = int(step[2])
            read.append(float(step[1]) * loops if f" on {table}" in line else 0.0)
        elif removed := re.search(r"Rows Removed by \w+(?: \w+)*: (\d+)", line):
            read.append(int(removed[1]) * loops)
    return int(max(read))


def scans(plan: str, *small: str) -> list[str]:
    """Return the tables that a plan scans without an index, except the small ones."""
    whole = re.findall(r"Seq Scan on (\w+)", plan)
    named = re.findall(r"^SCAN (\w+)(?! USING)\b", plan, re.MULTILINE)
    # SQLite also prints SCAN for subqueries; keep only tables and their aliases.
    whole += [
        each
        for each in named
        if each.startswith("duly_") or re.search(rf"\bduly_\w+ (AS )?{each}\b", plan)
    ]
    return [each for each in whole if each not in small]
