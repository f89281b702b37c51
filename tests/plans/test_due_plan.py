"""Plans of claims and attribute searches: an index range scan, and an index search."""

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine, event, insert

from duly import cron
from duly.model.index_rows import trigger_text
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.store import SqlStore
from tests.plans.explained import Verb, examined, plans_of
from tests.rows import NOON_MS, fill

pytestmark = pytest.mark.extended

DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
STORED = 100_000
DUE = 10


class Recorder:
    """The statements of an engine with their parameters, and its transactions."""

    def __init__(self, engine: Engine) -> None:
        self.statements: list[tuple[str, Any]] = []
        self.transactions: list[str] = []
        event.listen(engine, "before_cursor_execute", self._record)
        for name in ("begin", "commit", "rollback"):
            event.listen(engine, name, lambda *_, each=name: self.transactions.append(each))

    def _record(
        self, _c: object, _k: object, statement: str, parameters: Any, *_rest: object
    ) -> None:
        self.statements.append((statement, parameters))

    @property
    def verbs(self) -> list[str]:
        return [statement.split()[0] for statement, _ in self.statements]

    def query(self) -> tuple[str, Any]:
        """Return the first SELECT; in a claim it is the one that locks due rows."""
        return next(each for each in self.statements if each[0].startswith("SELECT"))


async def claim_and_record(
    url: str, now_ms: int | None = NOON_MS, flow: str | None = None, limit: int = 100
) -> tuple[SqlStore, Recorder, int]:
    store = cast(SqlStore, open_store(url))
    recorder = Recorder(store._engine)
    claimed = await store.claim_due(now_ms, limit, flow)
    return store, recorder, len(claimed)


@pytest.mark.parametrize("flow", [None, "bulk"])
def test_postgresql_examines_what_is_due(postgres_url: str, flow: str | None) -> None:
    asyncio.run(fill(postgres_url, DUE, DAILY, waiting=STORED))
    _analyse(postgres_url)
    plan = _claim_plan(postgres_url, lambda store: store.claim_due(NOON_MS, flow=flow))
    assert "Index Scan using duly_schedule_index_due" in plan, plan
    assert re.search(r"Index Cond: \(\(hand_over = .* AND \(flow = .* AND \(run_at_ms <=", plan), (
        plan
    )
    actual = [int(float(found)) for found in re.findall(r"actual time=\S+ rows=(\d+)", plan)]
    assert max(actual) == DUE, plan
    assert "Rows Removed" not in plan, plan


def _analyse(url: str) -> None:
    store = cast(SqlStore, open_store(url))
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    asyncio.run(store.close())


def _claim_plan(url: str, verb: Verb) -> str:
    """Return the plan of the statement that locks due rows."""
    return next(plan for plan in plans_of(url, verb) if "SKIP LOCKED" in plan)


def test_postgresql_uses_the_index_with_its_own_clock(postgres_url: str) -> None:
    """The query planner must see the range although the server's clock provides the time."""
    asyncio.run(fill(postgres_url, DUE, DAILY, waiting=STORED // 10))
    asyncio.run(_move_waiting(postgres_url))
    _analyse(postgres_url)
    plan = _claim_plan(postgres_url, lambda store: store.claim_due())
    assert "Index Scan using duly_schedule_index_due" in plan, plan
    assert examined(plan) == DUE, plan


async def _move_waiting(url: str) -> None:
    """Move rows that are not due at noon far into the future."""
    store = cast(SqlStore, open_store(url))
    far_ms = await store.now_ms() + 30 * 86_400_000
    await store._run(
        lambda db: db.run(
            "UPDATE {p}schedule_index SET run_at_ms = :far_ms WHERE run_at_ms > :noon_ms",
            far_ms=far_ms,
            noon_ms=NOON_MS,
        )
    )
    await store.close()


@pytest.mark.parametrize("flow", [None, "bulk"])
def test_sqlite_searches_the_due_index(tmp_path: Path, flow: str | None) -> None:
    url = f"sqlite:///{tmp_path}/plan.db"
    asyncio.run(fill(url, DUE, DAILY, waiting=STORED))
    store, recorder, claimed = asyncio.run(claim_and_record(url, flow=flow))
    asyncio.run(store.close())
    assert claimed == DUE
    statement, parameters = recorder.query()
    with sqlite3.connect(tmp_path / "plan.db") as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    connection.close()
    text = "\n".join(str(row[3]) for row in plan)
    by = "(hand_over=? AND flow=? AND run_at_ms>? AND run_at_ms<?)"
    assert f"USING INDEX duly_schedule_index_due {by}" in text, text
    assert "TEMP B-TREE" not in text, text


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_rules_are_found_by_number(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_file = backend == "sqlite"
    url = f"sqlite:///{tmp_path}/x.db" if is_file else request.getfixturevalue("postgres_url")
    asyncio.run(fill(url, DUE, DAILY, waiting=STORED // 10))
    store, recorder, _ = asyncio.run(claim_and_record(url))
    statement, parameters = next(
        e for e in recorder.statements if "FROM duly_schedule_rules" in e[0]
    )
    with store._engine.begin() as connection:
        connection.exec_driver_sql("ANALYZE")
        explain = "EXPLAIN QUERY PLAN" if is_file else "EXPLAIN"
        plan = str(connection.exec_driver_sql(f"{explain} {statement}", parameters).all())
    asyncio.run(store.close())
    by = "SEARCH duly_schedule_rules USING INTEGER PRIMARY KEY"
    assert (by if is_file else "duly_schedule_rules_pkey") in plan, plan
    assert "Seq Scan" not in plan, plan


def test_postgresql_advances_by_number(postgres_url: str) -> None:
    """If the query planner knew the length of the arrays, a large claim would scan the table."""
    asyncio.run(fill(postgres_url, 1_000, DAILY, waiting=STORED // 10))
    store, recorder, claimed = asyncio.run(claim_and_record(postgres_url, limit=1_000))
    assert claimed == 1_000
    statement, parameters = recorder.statements[-1]
    with store._engine.begin() as connection:
        connection.exec_driver_sql("ANALYZE")
        plan = str(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).all())
    asyncio.run(store.close())
    assert statement.startswith("UPDATE"), statement
    assert "Index Scan using duly_schedule_index_pkey" in plan, plan
    assert "Seq Scan" not in plan, plan


def test_sqlite_takes_the_same_steps_however_much_is_stored(tmp_path: Path) -> None:
    assert steps_of_a_claim(tmp_path / "few.db", 1_000) == steps_of_a_claim(
        tmp_path / "many.db", STORED
    )


def steps_of_a_claim(file: Path, stored: int) -> int:
    """Return the virtual machine steps of both queries of a claim in SQLite."""
    url, steps = f"sqlite:///{file}", 0
    asyncio.run(fill(url, DUE, DAILY, waiting=stored))
    store, recorder, _ = asyncio.run(claim_and_record(url))
    asyncio.run(store.close())
    (heads, no_values), (statement, parameters) = (
        next(each for each in recorder.statements if each[0].startswith(word))
        for word in ("WITH", "SELECT")
    )

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = sqlite3.connect(file)
    connection.set_progress_handler(step, 1)
    connection.execute(heads, no_values).fetchall()
    # The claim moved the rows to the next day.
    later = [NOON_MS + 86_400_000 if value == NOON_MS else value for value in parameters]
    assert len(connection.execute(statement, later).fetchall()) == DUE
    connection.close()
    assert steps > DUE
    return steps


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_claim_is_three_queries_and_one_update(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_file = backend == "sqlite"
    url = f"sqlite:///{tmp_path}/x.db" if is_file else request.getfixturevalue("postgres_url")
    asyncio.run(fill(url, 100, DAILY))
    store, recorder, claimed = asyncio.run(claim_and_record(url))
    asyncio.run(store.close())
    assert claimed == 100
    began = ["BEGIN"] if is_file else []
    assert recorder.verbs == [*began, "WITH", "SELECT", "SELECT", "UPDATE"]
    assert recorder.transactions == ["begin", "commit"]
    if is_file:
        assert recorder.statements[0][0] == "BEGIN IMMEDIATE"
    else:
        assert recorder.statements[1][0].endswith("FOR UPDATE SKIP LOCKED")


async def fill_documents(store: SqlStore) -> None:
    """Store ten thousand products, every second one with a project."""
    names = [f"{number:05}" for number in range(10_000)]
    document = {"collection": "products", "body": "{}", "version": 1}
    times = {"created_at_ms": NOON_MS, "updated_at_ms": NOON_MS}
    documents = [
        document | times | {"scope": f"user:{name}", "name": name, "id": name} for name in names
    ]
    entry = {"collection": "products", "attribute": "project"}
    entries = [
        entry | {"value": f"p{name}", "scope": f"user:{name}", "name": name} for name in names[::2]
    ]

    def write(db: Db) -> None:
        db.connection.execute(insert(db.tables.resources), documents)
        db.connection.execute(insert(db.tables.resource_index), entries)
        db.connection.exec_driver_sql("ANALYZE")

    await store._run(write)


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize(("value", "found"), [("p04200", ["04200"]), ("unknown", [])])
def test_find_is_one_search(
    backend: str, value: str, found: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_file = backend == "sqlite"
    url = f"sqlite:///{tmp_path}/x.db" if is_file else request.getfixturevalue("postgres_url")
    store = cast(SqlStore, open_store(url))
    asyncio.run(fill_documents(store))
    recorder = Recorder(store._engine)
    documents = asyncio.run(store.find_documents("products", "project", value))
    assert [document.name for document in documents] == found
    statement, parameters = recorder.query()
    explain = "EXPLAIN QUERY PLAN" if is_file else "EXPLAIN"
    with store._engine.begin() as connection:
        plan = str(connection.exec_driver_sql(f"{explain} {statement}", parameters).all())
    asyncio.run(store.close())
    # In SQLite the table is WITHOUT ROWID, so the primary key is the index.
    by = "USING PRIMARY KEY (collection=? AND attribute=? AND value=?)"
    assert (by if is_file else "using duly_resource_index_pkey") in plan, plan
    assert ("SCAN" if is_file else "Seq Scan") not in plan, plan
