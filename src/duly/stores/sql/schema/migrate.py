"""Schema migrations: numbered, forward only, applied under a lock.

Errors name the problem and the command that fixes it. A migration must work with the code of the
previous release, so a newer schema is accepted as long as it is marked readable by this release.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from sqlalchemy import Connection, inspect, select

from duly.errors import BackendUnavailable
from duly.stores.sql.dialects.dialect import Dialect
from duly.stores.sql.schema.tables import SCHEMA_VERSION, Tables

_READABLE_FROM = {
    1: 1,
    2: 1,
    3: 1,
    4: 1,
    5: 1,
    6: 1,
    7: 1,
    8: 1,
    9: 1,
    10: 10,
    11: 10,
    12: 10,
    13: 10,
    14: 10,
    15: 10,
    16: 10,
    17: 17,
    18: 17,
    19: 19,
    20: 19,
}
"""By schema version: the oldest release's version that can still work on it."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its number, its name and its statements in one dialect."""

    number: int
    name: str
    sql: str

    def statements(self, dialect: Dialect, tables: Tables) -> list[str]:
        """Return the statements for one namespace."""
        table, index = dialect.names(tables)
        text = self.sql.replace("{p}", table).replace("{i}", index)
        return [part.strip() for part in text.split(";\n") if part.strip(" \n;")]


@lru_cache(maxsize=8)
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return all migrations of a dialect, in order."""
    folder = resources.files("duly.stores.sql.schema") / "migrations"
    found = []
    for file in folder.iterdir():
        if file.name.endswith(f".{dialect}.sql"):
            number, _, name = file.name.removesuffix(f".{dialect}.sql").partition("_")
            found.append(Migration(int(number), name, file.read_text()))
    return tuple(sorted(found, key=lambda migration: migration.number))


def upgrade(connection: Connection, dialect: Dialect, tables: Tables) -> list[Migration]:
    """Apply and return the missing migrations; safe when several processes start at once."""
    if not _steps(connection, dialect, tables):
        return []  # skip the guard: waiting for it has no deadline
    dialect.guard_schema(connection, tables)
    steps = _steps(connection, dialect, tables)
    for step in steps:
        for statement in step.statements(dialect, tables):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(record_statement(dialect, tables, step.number))
    return steps


def _steps(connection: Connection, dialect: Dialect, tables: Tables) -> list[Migration]:
    """Return the migrations that the database lacks."""
    found = version(connection, tables) or 0
    return [step for step in migrations(dialect.name) if step.number > found]


def record_statement(dialect: Dialect, tables: Tables, number: int) -> str:
    """Return the statement that records a migration as applied."""
    table, _ = dialect.names(tables)
    now = dialect.now_ms().compile(compile_kwargs={"literal_binds": True})
    readable_from = _READABLE_FROM[number]
    if number == migrations(dialect.name)[0].number:
        names = "version, readable_from, updated_at_ms"
        return f"INSERT INTO {table}schema ({names}) VALUES ({number}, {readable_from}, {now})"
    return (
        f"UPDATE {table}schema SET version = {number}, readable_from = {readable_from}, "
        f"updated_at_ms = {now}"
    )


def version(connection: Connection, tables: Tables) -> int | None:
    """Return the schema version of the database; None: there is no schema."""
    if not inspect(connection).has_table(tables.schema.name, schema=tables.schema.schema):
        return None
    return connection.execute(select(tables.schema.c.version)).scalar()


def check(connection: Connection, tables: Tables) -> None:
    """Refuse a database that this release cannot use; the error names the problem."""
    found = version(connection, tables)
    if found is None:
        raise BackendUnavailable(
            f"table {tables.schema.fullname} does not exist; run: duly schema init"
        )
    if found < SCHEMA_VERSION:
        raise BackendUnavailable(
            f"the database has schema version {found}, this release needs {SCHEMA_VERSION}; "
            "run: duly schema upgrade"
        )
    readable_from = connection.execute(select(tables.schema.c.readable_from)).scalar_one()
    if readable_from > SCHEMA_VERSION:
        raise BackendUnavailable(
            f"the database has schema version {found} and needs a release with schema version "
            f"{readable_from} or later; this release has {SCHEMA_VERSION}: upgrade duly"
        )
    missing = missing_tables(connection, tables)
    if missing:
        raise BackendUnavailable(f"table {missing[0]} does not exist; run: duly schema init")


def missing_tables(connection: Connection, tables: Tables) -> list[str]:
    """Return the names of missing tables."""
    present = set(inspect(connection).get_table_names(schema=tables.schema.schema))
    return [table.fullname for table in tables.metadata.sorted_tables if table.name not in present]
