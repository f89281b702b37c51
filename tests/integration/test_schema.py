"""Migrations: applied once by concurrent starters, equal to the declared tables, verified."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Integer, create_engine, event, inspect, text
from sqlalchemy.engine import Engine, make_url

from duly import cron
from duly.cli import main
from duly.errors import BackendUnavailable, InvalidInput
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.stores import open_store
from duly.stores.sql.opening import dialect_of
from duly.stores.sql.schema.migrate import _READABLE_FROM, migrations
from duly.stores.sql.schema.tables import SCHEMA_VERSION, make_tables
from tests.rows import NOON_MS, rows

ROOT = Path(__file__).parent.parent.parent
OPEN = (
    "import asyncio, sys; from duly.stores import open_store; "
    "asyncio.run(open_store(sys.argv[1]).close())"
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/schema.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def plain_engine(url: str) -> Engine:
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    return create_engine(parsed if is_file else parsed.set(drivername="postgresql+psycopg"))


def close(url: str, **options: Any) -> None:
    asyncio.run(open_store(url, **options).close())


def test_migrated_database_has_the_declared_columns(url: str) -> None:
    close(url)
    tables = make_tables()
    engine = plain_engine(url)
    inspector = inspect(engine)
    for table in tables.metadata.sorted_tables:
        found = {column["name"]: column["nullable"] for column in inspector.get_columns(table.name)}
        declared = {column.name: bool(column.nullable) for column in table.columns}
        assert found == declared, table.name
        key = inspector.get_pk_constraint(table.name)["constrained_columns"]
        declared_key = [column.name for column in table.primary_key]
        if table is tables.schedule_index and not url.startswith("sqlite"):
            declared_key.append("version")  # ADR 0031
        assert key == declared_key, table.name
    engine.dispose()


def test_index_table_has_its_types_and_indexes(url: str) -> None:
    close(url)
    engine = plain_engine(url)
    inspector = inspect(engine)
    is_file = url.startswith("sqlite")
    types = {
        column["name"]: type(column["type"]).__name__
        for table in ("duly_schedule_rules", "duly_schedule_index")
        for column in inspector.get_columns(table)
    }
    words = {name for name, kind in types.items() if kind == "TEXT"}
    instants = {
        name for name, kind in types.items() if kind == ("INTEGER" if is_file else "BIGINT")
    }
    assert words >= {"schedule_id", "flow", "scope", "name", "trigger_json", "zone"}
    assert instants >= {"row_id", "nominal_ms", "run_at_ms", "version"}
    indexes = {
        index["name"]: (index["column_names"], bool(index["unique"]))
        for table in ("duly_schedule_rules", "duly_schedule_index")
        for index in inspector.get_indexes(table)
    }
    assert indexes["duly_schedule_rules_key"] == (["flow", "scope", "name"], True)
    assert indexes["duly_schedule_rules_id"] == (["schedule_id"], True)
    # An index of SQLite ends with the rowid implicitly.
    due = ["hand_over", "flow", "run_at_ms", "priority", *([] if is_file else ["row_id"])]
    assert indexes["duly_schedule_index_due"] == (due, False)
    engine.dispose()


def test_claims_write_only_the_narrow_table(url: str) -> None:
    """The table has numbers and short words only, so that rows stay narrow."""
    close(url)
    engine = plain_engine(url)
    columns = inspect(engine).get_columns("duly_schedule_index")
    engine.dispose()
    words = {each["name"] for each in columns if not isinstance(each["type"], Integer)}
    assert words == {"flow", "hand_over", "error"}


def test_index_emptied_by_hand_is_rebuilt(url: str) -> None:
    """Rules that are left behind must not get in the way."""
    key, definition = (
        ScheduleKey("app", "user:ada", "digest"),
        Definition(cron("0 9 * * *"), "send"),
    )

    async def check() -> None:
        store = open_store(url)
        await store.put_schedules([ScheduleWrite(key, ScheduleId("sch_1"), definition)])
        before = await store.list_rows()
        engine = plain_engine(url)
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM duly_schedule_index"))
        engine.dispose()
        assert (await store.reconcile()).added == 1
        assert await store.list_rows() == before
        await store.close()

    asyncio.run(check())


def test_every_instant_is_an_integer(url: str) -> None:
    close(url)
    engine = plain_engine(url)
    inspector = inspect(engine)
    kinds = {
        f"{table}.{column['name']}": column["type"]
        for table in inspector.get_table_names()
        for column in inspector.get_columns(table)
        if column["name"].endswith(("_ms", "_at"))
    }
    engine.dispose()
    assert "duly_schedule_events.at_ms" in kinds
    assert [name for name, kind in kinds.items() if not isinstance(kind, Integer)] == []


def test_second_start_changes_nothing(url: str) -> None:
    close(url)
    engine = plain_engine(url)
    with engine.connect() as connection:
        before = connection.execute(text("SELECT * FROM duly_schema")).all()
    close(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT * FROM duly_schema")).all() == before
    engine.dispose()
    assert [row[:2] for row in before] == [(SCHEMA_VERSION, _READABLE_FROM[SCHEMA_VERSION])]


def test_concurrent_starters_apply_it_once(url: str) -> None:
    starters = [
        subprocess.Popen([sys.executable, "-c", OPEN, url], cwd=ROOT, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    errors = [starter.communicate()[1].decode() for starter in starters]
    assert [starter.returncode for starter in starters] == [0] * 4, errors


def test_skip_schema_init_runs_no_ddl(url: str) -> None:
    seen: list[str] = []

    def note(*event_arguments: Any) -> None:
        seen.append(event_arguments[2])

    def changes_of(start: Callable[[], object]) -> list[str]:
        seen.clear()
        start()
        assert seen
        words = ("CREATE", "ALTER", "DROP")
        return [statement for statement in seen if statement.upper().startswith(words)]

    def skip_on_an_empty_one() -> None:
        said = r"duly_schema does not exist.*duly schema init"
        with pytest.raises(BackendUnavailable, match=said):
            open_store(url, skip_schema_init=True)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert changes_of(skip_on_an_empty_one) == []
        assert changes_of(lambda: close(url)) != []
        assert changes_of(lambda: close(url, skip_schema_init=True)) == []
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_printed_schema_can_be_run_by_hand(url: str) -> None:
    printed = CliRunner().invoke(main, ["schema", "print", url])
    assert printed.exit_code == 0
    engine = plain_engine(url)
    with engine.begin() as connection:
        for statement in printed.output.rstrip().split(";\n"):
            connection.exec_driver_sql(statement.rstrip(";"))
    engine.dispose()
    close(url, skip_schema_init=True)


def test_missing_table_is_named(url: str) -> None:
    close(url)
    engine = plain_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE duly_schedule_index"))
    engine.dispose()
    with pytest.raises(BackendUnavailable, match="duly_schedule_index does not exist"):
        open_store(url, skip_schema_init=True)


def test_calls_name_a_missing_table(url: str) -> None:
    store = open_store(url)
    engine = plain_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE duly_schedule_index"))
    engine.dispose()
    (row,) = rows(1, "{}")
    said = r"no such table: duly_schedule_index|\"duly_schedule_index\" does not exist"
    for call in (
        lambda: store.upsert(row),
        lambda: store.remove(ScheduleKey(row.flow, row.scope, row.name)),
        lambda: store.claim_due(NOON_MS),
    ):
        with pytest.raises(BackendUnavailable, match=said):
            asyncio.run(call())
    asyncio.run(store.close())


@pytest.mark.parametrize(
    ("version", "readable_from", "remedy"),
    [(0, 0, "run: duly schema upgrade"), (99, 98, "upgrade duly")],
)
def test_wrong_version_is_refused(url: str, version: int, readable_from: int, remedy: str) -> None:
    close(url)
    set_version(url, version, readable_from)
    with pytest.raises(BackendUnavailable, match=remedy):
        open_store(url, skip_schema_init=True)


def test_newer_readable_schema_is_accepted(url: str) -> None:
    """In a rolling deploy, the new release has migrated and the old one restarts."""
    close(url)
    set_version(url, 99, SCHEMA_VERSION)
    close(url)


def set_version(url: str, version: int, readable_from: int) -> None:
    engine = plain_engine(url)
    with engine.begin() as connection:
        statement = text(
            "UPDATE duly_schema SET version = :version, readable_from = :readable_from"
        )
        connection.execute(statement, {"version": version, "readable_from": readable_from})
    engine.dispose()


def test_namespaces_have_their_own_tables(url: str) -> None:
    close(url, namespace="billing")
    close(url, namespace="crm")
    engine = plain_engine(url)
    names = inspect(engine).get_table_names()
    is_file = url.startswith("sqlite")
    assert ("billing_duly_schedule_index" in names) is is_file
    assert is_file or {"billing", "crm"} <= set(inspect(engine).get_schema_names())
    assert "duly_schedule_index" not in names
    engine.dispose()


def test_namespaces_have_their_own_rows_and_claims(url: str) -> None:
    billing, crm = (open_store(url, namespace=name) for name in ("billing", "crm"))
    (row,) = rows(1, '{"kind":"cron","expression":"0 12 * * *"}')
    asyncio.run(billing.upsert(row))
    assert asyncio.run(crm.list_rows()) == []
    asyncio.run(crm.upsert(row))
    taken = [asyncio.run(each.claim_due(NOON_MS, claim_id="one")) for each in (billing, crm)]
    assert [len(claimed) for claimed in taken] == [1, 1]
    asyncio.run(billing.remove(ScheduleKey(row.flow, row.scope, row.name)))
    assert len(asyncio.run(crm.list_rows())) == 1
    for each in (billing, crm):
        asyncio.run(each.close())


@pytest.mark.parametrize("namespace", ["", "Billing", "a-b", "1x", 'x"; DROP', "x" * 40])
def test_namespace_is_checked(namespace: str) -> None:
    with pytest.raises(InvalidInput, match="namespace"):
        open_store("sqlite:///never-made.db", namespace=namespace)


def test_every_dialect_has_the_same_steps() -> None:
    steps = [[(m.number, m.name) for m in migrations(d)] for d in ("sqlite", "postgresql")]
    assert steps[0] == steps[1]
    assert [number for number, _ in steps[0]] == list(range(1, SCHEMA_VERSION + 1))
    assert dialect_of("postgresql://").name == "postgresql"


def test_commands(url: str) -> None:
    runner = CliRunner()
    checked = runner.invoke(main, ["schema", "check", url])
    assert (checked.exit_code, "duly schema init" in checked.output) == (3, True)
    made = runner.invoke(main, ["schema", "init", url])
    names = [step.name for step in migrations("sqlite")]
    steps = "".join(f"applied {number:04} {name}\n" for number, name in enumerate(names, 1))
    assert (made.exit_code, made.output) == (0, steps)
    again = runner.invoke(main, ["schema", "upgrade", url])
    assert (again.exit_code, again.output) == (0, "nothing to do, the schema is up to date\n")
    fine = runner.invoke(main, ["schema", "check", url])
    assert (fine.exit_code, fine.output) == (0, f"schema version {SCHEMA_VERSION}: fine\n")
    unknown = runner.invoke(main, ["schema", "print", "oracle://x"])
    assert unknown.exit_code == 2
