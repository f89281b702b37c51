"""Generate the list of tables with columns and indexes, from a migrated database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

from sqlalchemy import Table, create_engine, text

from duly.stores.sql.opening import dialect_of
from duly.stores.sql.schema import migrate
from duly.stores.sql.schema.tables import PREFIX, Tables, make_tables
from tools.reference.markdown import code, table, words

_URL = "sqlite://"
_KINDS = {"BIGINT": "whole, 64 bits", "INTEGER": "whole", "TEXT": "text"}


def migrations() -> str:
    """Return the table of migrations, each with the oldest schema version that can read it."""
    rows = [
        (f"{step.number:04}", step.name, _readable_from(step.number))
        for step in migrate.migrations("postgresql")
    ]
    return table(("number", "name", "readable by releases from"), rows)


def every_table() -> str:
    """Return a section for each table."""
    tables, statements = make_tables(), _indexes()
    parts = []
    for field in fields(Tables):
        found: Table = getattr(tables, field.name)
        lines = [f"- {code(name)}: {about}" for name, about in statements.get(found.name, ())]
        listed = "\n".join(["", "Indexes:", "", *lines]) if lines else ""
        parts.append(f"### {found.name}\n\n{_columns(found)}\n{listed}".rstrip())
    return "\n\n".join(parts)


def _readable_from(number: int) -> str:
    """Return the oldest schema version for a step, from the statement that records the step."""
    statement = migrate.record_statement(dialect_of(_URL), make_tables(), number)
    found = re.search(rf"(?:\({number}, |readable_from = )(\d+)", statement)
    assert found is not None, statement
    return found[1]


def _columns(found: Table) -> str:
    keys = [column.name for column in found.primary_key.columns]
    rows = [
        (code(column.name), _KINDS[str(column.type)], "yes" if column.nullable else "")
        for column in found.columns
    ]
    own = _postgresql_keys().get(found.name, keys)
    on_postgresql = "" if own == keys else f"; on PostgreSQL {words(own)}"
    return f"Key: {words(keys)}{on_postgresql}.\n\n" + table(
        ("column", "type", "may be empty"), rows
    )


def _postgresql_keys() -> dict[str, list[str]]:
    """Return the keys that migrations of PostgreSQL have replaced, by table."""
    pattern = r"ALTER TABLE \{p\}(\w+)[^;]*? ADD (?:CONSTRAINT \S+ )?PRIMARY KEY \(([^)]*)\)"
    return {
        f"{PREFIX}{name}": columns.split(", ")
        for step in migrate.migrations("postgresql")
        for name, columns in re.findall(pattern, step.sql)
    }


def _indexes() -> dict[str, list[tuple[str, str]]]:
    """Return the indexes by table: the name, and the columns as SQLite reports them."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, on, sql in _made():
        unique = "unique, " if sql.startswith("CREATE UNIQUE") else ""
        columns = " ".join(sql.partition(f" {on} ")[2].split())
        found.setdefault(on, []).append((name, f"{unique}{code(columns)}"))
    for name, on, columns in _only_on_postgresql({name for name, _, _ in _made()}):
        found.setdefault(on, []).append((name, f"PostgreSQL only, {code(columns)}"))
    return found


def _only_on_postgresql(known: set[str]) -> list[tuple[str, str, str]]:
    """Return the name, table and columns of indexes that only PostgreSQL has."""
    found: dict[str, tuple[str, str, str]] = {}
    for step in migrate.migrations("postgresql"):
        for name in re.findall(r"DROP INDEX \{p\}(\w+)", step.sql):
            found.pop(name, None)
        for name, on, columns in re.findall(
            r"CREATE INDEX \{i\}(\w+)\s+ON \{p\}(\w+) (\([^;]*)", step.sql
        ):
            found[name] = (f"{PREFIX}{name}", f"{PREFIX}{on}", " ".join(columns.split()))
    return [each for each in found.values() if each[0] not in known]


def _made() -> Iterator[tuple[str, str, str]]:
    dialect = dialect_of(_URL)
    engine = create_engine(_URL)
    with engine.begin() as connection:
        for step in migrate.migrations("sqlite"):
            for statement in step.statements(dialect, make_tables()):
                connection.exec_driver_sql(statement)
        rows = connection.execute(
            text(
                "SELECT name, tbl_name, sql FROM sqlite_schema"
                " WHERE type = 'index' AND sql IS NOT NULL ORDER BY tbl_name, name"
            )
        )
        yield from ((name, on, sql) for name, on, sql in rows)
    engine.dispose()
