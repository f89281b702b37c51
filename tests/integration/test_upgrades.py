"""Upgrades: a database of every earlier version, with rows, gets the shape of a new one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from sqlalchemy import Connection, Engine, Table, column, create_engine, inspect, select
from sqlalchemy import table as table_of
from sqlalchemy.engine import make_url

from duly.flows.collections import ScheduleCollection
from duly.model.events import Attempt
from duly.model.jobs import JobId, JobState, LeasedJob, NewJob, WorkerId, retry_text
from duly.model.retries import RetryPolicy
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Definition, HandOver
from duly.model.scopes import user
from duly.rules.outcomes import Failed, decide
from duly.stores import open_store
from duly.stores.schema_commands import upgrade_schema
from duly.stores.sql.fast.inserts import full_row
from duly.stores.sql.opening import dialect_of
from duly.stores.sql.schema.migrate import migrations, record_statement
from duly.stores.sql.schema.tables import SCHEMA_VERSION, make_tables
from duly.triggers import Trigger, cron
from tests.property.derived_rows import check_derived_rows
from tests.servers import PostgresServer


class Pair(NamedTuple):
    """Two empty databases of one kind."""

    old: str
    new: str


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    if request.param == "sqlite":
        return Pair(f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return Pair(server.create(), server.create())


def engine_of(url: str) -> Engine:
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    return create_engine(parsed if is_file else parsed.set(drivername="postgresql+psycopg"))


def make_version(connection: Connection, url: str, version: int) -> None:
    """Create the schema as the release of that version left it."""
    dialect = dialect_of(url)
    tables = dialect.tables(None)
    for step in migrations(dialect.name)[:version]:
        for statement in step.statements(dialect, tables):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(record_statement(dialect, tables, step.number))


REMOVED = {"duly_job_line": {"careful": 1}}
"""Columns of earlier versions that were dropped, with a value."""


def a_value(table: Table, name: str) -> Any:
    if name in REMOVED.get(table.name, {}):
        return REMOVED[table.name][name]
    return 7 if "INT" in str(table.c[name].type).upper() else f"{table.name} {name}"


def present(connection: Connection) -> dict[str, list[str]]:
    """Return the existing tables without the schema version table, with their columns."""
    seen = inspect(connection)
    names = [name for name in seen.get_table_names() if name != "duly_schema"]
    return {name: [each["name"] for each in seen.get_columns(name)] for name in names}


def add_rows(connection: Connection) -> dict[str, list[Any]]:
    """Insert a row into every existing table, with a value in every column; return all rows."""
    columns = present(connection)
    for table in make_tables().metadata.sorted_tables:
        if table.name in columns:
            row = {name: a_value(table, name) for name in columns[table.name]}
            lightweight = table_of(table.name, *map(column, row))
            connection.execute(lightweight.insert().values(row))
    return stored(connection, columns)


def stored(connection: Connection, columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    return {
        table.name: [
            tuple(row)
            for row in connection.execute(
                select(*(table.c[name] for name in columns[table.name] if name in table.c))
            )
        ]
        for table in make_tables().metadata.sorted_tables
        if table.name in columns
    }


def shape(engine: Engine) -> dict[str, Any]:
    """Return columns, keys and indexes of every table."""
    seen = inspect(engine)
    return {
        name: (
            sorted((c["name"], str(c["type"]), c["nullable"]) for c in seen.get_columns(name)),
            seen.get_pk_constraint(name)["constrained_columns"],
            sorted(
                (i["name"], str(i["column_names"]), i["unique"]) for i in seen.get_indexes(name)
            ),
        )
        for name in sorted(seen.get_table_names())
    }


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_every_earlier_version_becomes_the_newest(pair: Pair, version: int) -> None:
    old, new = engine_of(pair.old), engine_of(pair.new)
    with old.begin() as connection:
        make_version(connection, pair.old, version)
        columns = present(connection)
        before = add_rows(connection)
    assert before
    upgrade_schema(pair.old)
    asyncio.run(open_store(pair.new).close())
    with old.connect() as connection:
        after = stored(connection, columns)
    assert after == before
    assert shape(old) == shape(new)
    for engine in (old, new):
        engine.dispose()


JOB = JobId("job_1")
ADA = WorkerId("worker-ada")


def add_job(connection: Connection, state: JobState, **columns: Any) -> None:
    """Insert a job in or after its first attempt, as releases before schema version 9 wrote it."""
    tables = make_tables()
    path = [JobState.QUEUED, JobState.PROCESSING, state]
    path = path[: path.index(state) + 1]
    row = full_row(NewJob(id=JOB, action="a.b"), 1_000)
    row |= {"state": state.value, "fence": 1, "events": len(path)} | columns
    connection.execute(tables.jobs.insert().values(row))
    for number, each in enumerate(path, 1):
        is_claim = each is JobState.PROCESSING
        event = {"job_id": JOB, "seq": number, "at_ms": number * 1_000, "state": each.value}
        event |= {"attempt": min(number - 1, 1), "actor": ADA if is_claim else None}
        connection.execute(tables.job_events.insert().values(event))


async def history(
    url: str, *ends: LeasedJob, is_deleted: bool = False
) -> list[tuple[int, str, str | None]]:
    """Return the events of the job after failing its attempts or deleting it, if asked for."""
    store = open_store(url)
    try:
        for job in ends:
            assert await store.finish([decide(job, Failed("no", is_final=True))]) == []
        if is_deleted:
            await store.delete_job(JOB, by="ops")
        newest = (await store.job_events(JOB))[-1]
        assert await store.job_events(JOB, limit=1) == [newest]
        (attempt,) = await store.job_attempts(JOB)
        assert attempt[:4] == Attempt(JOB, 1, ADA, 2_000, None, None, None)[:4]
        return [(each.seq, each.state.value, each.actor) for each in await store.job_events(JOB)]
    finally:
        await store.close()


def test_jobs_of_every_state_get_line_and_marks(pair: Pair) -> None:
    """Version 10 adds the line and the marks; the migration creates them for existing jobs."""
    later = {"run_at_ms": 1 << 50}
    states: list[tuple[JobState, dict[str, Any]]] = [
        (JobState.QUEUED, {}),
        (JobState.QUEUED, {"careful": 1, "max_attempts": 1, "place": 7}),
        (JobState.SCHEDULED, later),
        (JobState.SCHEDULED, {"in_line": 1}),
        (JobState.RETRYING, later),
        (JobState.PROCESSING, {"worker": ADA, "lease_until_ms": 5_000}),
        (JobState.SUCCEEDED, {"finished_at_ms": 3_000}),
        (JobState.SUCCEEDED, {"finished_at_ms": 3_000}),
        (JobState.DEAD, {"finished_at_ms": 4_000}),
    ]
    engine = engine_of(pair.old)
    with engine.begin() as connection:
        make_version(connection, pair.old, 9)
        for number, (state, columns) in enumerate(states):
            row = full_row(NewJob(id=JobId(f"job_{number}"), action="a.b"), 1_000)
            del row["waits"]
            row |= {"state": state.value} | columns
            connection.execute(make_tables().jobs.insert().values(row))
    engine.dispose()
    upgrade_schema(pair.old)
    store = open_store(pair.old)
    check_derived_rows(store)
    asyncio.run(store.close())


def test_external_schedules_become_active_or_paused(pair: Pair) -> None:
    """Before version 12 `external` was a state, and a pause was only in the definition."""
    hourly = cron("0 * * * *").bind("a", datetime(2026, 1, 1, tzinfo=UTC))
    words = '"hand_over":"http" "enabled":false'
    given = {"hand_over": "external", "enabled": False, "input": {"hand_over": "http"}}
    rows: dict[str, tuple[str, Definition, str, str]] = {
        "jobs": ("active", Definition(hourly, "a", input=given), "active", "jobs"),
        "http": ("paused", _definition(hourly, "http", enabled=False), "paused", "http"),
        "on": ("external", _definition(hourly, "external", input=given), "active", "external"),
        "said": (
            "external",
            _definition(hourly, "external", description=words, note=words),
            "active",
            "external",
        ),
        "off": ("external", _definition(hourly, "external", enabled=False), "paused", "external"),
    }
    engine = engine_of(pair.old)
    with engine.begin() as connection:
        make_version(connection, pair.old, 11)
        table = make_tables().resources
        columns = ("collection", "scope", "name", "id", "version", "state", "body")
        for name, (state, definition, *_) in rows.items():
            stored_name = f"crm/{name}"
            values = ("schedules", "user:ada", stored_name, name, 1, state, definition.to_json())
            row: dict[str, Any] = dict(zip(columns, values, strict=True))
            row |= {"created_at_ms": 1, "updated_at_ms": 1}
            connection.execute(table.insert().values(row))
    engine.dispose()
    upgrade_schema(pair.old)

    async def read() -> None:
        store = open_store(pair.old)
        try:
            for name, (_, definition, state, hand_over) in rows.items():
                found = await store.get_schedule(ScheduleKey("crm", "user:ada", name))
                assert found is not None
                assert (found.definition, found.state) == (definition, state)
                same = ScheduleFilter(hand_over=cast(HandOver, hand_over), name_prefix=name)
                assert found in await store.search_schedules(same)
        finally:
            await store.close()

    asyncio.run(read())


def test_finished_schedules_get_their_end_time(pair: Pair) -> None:
    """Version 15 adds a retention, which counts from the end of schedules that finished earlier."""
    hourly = cron("0 * * * *").bind("a", datetime(2026, 1, 1, tzinfo=UTC))
    tables, body = make_tables(), Definition(hourly, "a").to_json()
    engine = engine_of(pair.old)
    with engine.begin() as connection:
        make_version(connection, pair.old, 14)
        for name, state in (("told", "finished"), ("untold", "finished"), ("runs", "active")):
            row: dict[str, Any] = {"collection": "schedules", "scope": "user:ada", "version": 1}
            row |= {"name": f"crm/{name}", "id": name, "state": state, "body": body}
            row |= {"created_at_ms": 1, "updated_at_ms": 2}
            connection.execute(tables.resources.insert().values(row))
        event = {"schedule_id": "told", "kind": "finished", "at_ms": 7, "actor": "system"}
        connection.execute(tables.schedule_events.insert().values(event | {"detail": "{}"}))
    upgrade_schema(pair.old)
    with engine.connect() as connection:
        table = tables.resources
        found = connection.execute(select(table.c.id, table.c.finished_at_ms)).all()
    engine.dispose()
    assert {row[0]: row[1] for row in found} == {"told": 7, "untold": 2, "runs": None}


def _definition(trigger: Trigger, hand_over: HandOver, **fields: Any) -> Definition:
    return Definition(trigger, "a", hand_over=hand_over, **fields)


def test_states_written_by_the_release_before_are_read(pair: Pair) -> None:
    """It runs concurrently during an upgrade and writes `external` as a state."""

    async def read() -> str:
        store = open_store(pair.new)
        try:
            mine = ScheduleCollection(store, "crm").of(user("ada"))
            await mine.create("n", "0 * * * *", action="a", hand_over="external")
            engine = engine_of(pair.new)
            with engine.begin() as connection:
                connection.execute(make_tables().resources.update().values(state="external"))
            engine.dispose()
            found = await mine.get("n")
            assert found is not None
            return found.state
        finally:
            await store.close()

    assert asyncio.run(read()) == "active"


def leased() -> LeasedJob:
    words = ("a.b", "null", "default", "system", "system", 0, 1, 0, 1, retry_text(RetryPolicy()))
    return LeasedJob(JOB, *words, 1_000, None, None, None, 0)


@pytest.mark.parametrize("claimed_at_ms", [None, 7], ids=["older", "beside"])
def test_events_of_older_releases_are_listed_once(pair: Pair, claimed_at_ms: int | None) -> None:
    """`beside`: an older release claims a job that this release claimed before."""
    begun = [(1, "queued", None), (2, "processing", ADA)]
    for url, state, columns in (
        (pair.old, JobState.PROCESSING, {"worker": ADA, "lease_until_ms": 1 << 50}),
        (pair.new, JobState.SUCCEEDED, {"finished_at_ms": 3_000}),
    ):
        engine = engine_of(url)
        with engine.begin() as connection:
            make_version(connection, url, 8)
        upgrade_schema(url)
        with engine.begin() as connection:
            add_job(connection, state, claimed_at_ms=claimed_at_ms, **columns)
        engine.dispose()
    succeeded = [*begun, (3, "succeeded", None)]
    assert asyncio.run(history(pair.new)) == succeeded
    assert asyncio.run(history(pair.new, is_deleted=True)) == [*succeeded, (4, "deleted", "ops")]
    assert asyncio.run(history(pair.old)) == begun
    ended = [*begun, (3, "failed", None), (4, "dead", None)]
    assert asyncio.run(history(pair.old, leased())) == ended
