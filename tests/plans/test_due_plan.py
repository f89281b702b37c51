"""The due query is an index range scan: its cost follows what is due, not what is stored."""

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine, event

from duly import cron
from duly.occurrences import trigger_text
from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from tests.rows import NOON_MS, fill

DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
STORED = 100_000
DUE = 10


class Recorder:
    """The statements of an engine, with their parameters."""

    def __init__(self, engine: Engine) -> None:
        self.statements: list[tuple[str, Any]] = []
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(
        self, _c: object, _k: object, statement: str, parameters: Any, *_rest: object
    ) -> None:
        self.statements.append((statement, parameters))

    @property
    def verbs(self) -> list[str]:
        return [statement.split()[0] for statement, _ in self.statements]

    def due_query(self) -> tuple[str, Any]:
        (found,) = [each for each in self.statements if each[0].startswith("SELECT")]
        return found


async def claim_and_record(
    url: str, now_ms: int | None = NOON_MS
) -> tuple[SqlStore, Recorder, int]:
    store = cast(SqlStore, open_store(url))
    recorder = Recorder(store._engine)
    claimed = await store.claim_due(now_ms)
    return store, recorder, len(claimed)


def test_postgresql_examines_what_is_due(postgres_url: str) -> None:
    asyncio.run(fill(postgres_url, DUE, DAILY, waiting=STORED))
    asyncio.run(_check_postgresql(postgres_url))


async def _check_postgresql(url: str) -> None:
    store = cast(SqlStore, open_store(url))
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE duly_schedule_index")
    recorder = Recorder(store._engine)
    await store.claim_due(NOON_MS - 1)  # nothing due yet: the plan can be asked about afterwards
    statement, parameters = recorder.due_query()
    parameters = {
        name: NOON_MS if value == NOON_MS - 1 else value for name, value in parameters.items()
    }
    with store._engine.begin() as connection:
        explained = connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, BUFFERS OFF) {statement}", parameters
        )
        plan = "\n".join(row[0] for row in explained)
    await store.close()
    assert "Index Scan using duly_schedule_index_due" in plan, plan
    assert "Index Cond: (run_at_ms <=" in plan, plan
    examined = re.search(r"duly_schedule_index_due on .*rows=(\d+)", plan.replace("actual ", ""))
    actual = [int(float(found)) for found in re.findall(r"actual time=\S+ rows=(\d+)", plan)]
    assert examined is not None
    assert max(actual) == DUE, plan
    assert "Rows Removed" not in plan, plan


def test_postgresql_uses_the_index_with_its_own_clock(postgres_url: str) -> None:
    """The server's clock must not hide the range from the planner."""
    asyncio.run(fill(postgres_url, 0, DAILY, waiting=STORED // 10))

    async def check() -> str:
        store = cast(SqlStore, open_store(postgres_url))
        with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE duly_schedule_index")
        recorder = Recorder(store._engine)
        await store.claim_due()
        statement, parameters = recorder.due_query()
        with store._engine.begin() as connection:
            explained = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
            plan = "\n".join(row[0] for row in explained)
        await store.close()
        return plan

    plan = asyncio.run(check())
    assert "Index Scan using duly_schedule_index_due" in plan, plan
    assert "Index Cond: (run_at_ms <=" in plan, plan


def test_sqlite_searches_the_due_index(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plan.db"
    asyncio.run(fill(url, DUE, DAILY, waiting=STORED))
    store, recorder, claimed = asyncio.run(claim_and_record(url))
    asyncio.run(store.close())
    assert claimed == DUE
    statement, parameters = recorder.due_query()
    with sqlite3.connect(tmp_path / "plan.db") as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    connection.close()
    text = "\n".join(str(row[3]) for row in plan)
    assert re.search(r"SEARCH \w+ USING INDEX duly_schedule_index_due \(run_at_ms[<>]", text), text
    assert "TEMP B-TREE" not in text, text


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_claim_is_one_select_and_one_update(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_file = backend == "sqlite"
    url = f"sqlite:///{tmp_path}/x.db" if is_file else request.getfixturevalue("postgres_url")
    asyncio.run(fill(url, 100, DAILY))
    store, recorder, claimed = asyncio.run(claim_and_record(url))
    asyncio.run(store.close())
    assert claimed == 100
    began = ["BEGIN"] if is_file else []
    assert recorder.verbs == [*began, "SELECT", "UPDATE"]
    if is_file:
        assert recorder.statements[0][0] == "BEGIN IMMEDIATE"
    else:
        assert recorder.statements[0][0].endswith("FOR UPDATE SKIP LOCKED")
