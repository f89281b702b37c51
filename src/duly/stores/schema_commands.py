"""Schema commands for operators who run DDL themselves: print, upgrade and check.

Each works on a URL and closes its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import SQLAlchemyError

from duly.errors import InvalidInput
from duly.stores.sql.dialects.dialect import Dialect
from duly.stores.sql.failures import translated
from duly.stores.sql.opening import dialect_of
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.schema import migrate
from duly.stores.sql.schema.tables import Tables

T = TypeVar("T")


def print_schema(url: str, namespace: str | None = None) -> str:
    """Return the statements that create this release's schema, in order; needs no server."""
    dialect, tables = _parts(url, namespace)
    lines = [f"-- Duly schema for {dialect.name}"]
    if tables.schema.schema is not None:
        lines.append(f'CREATE SCHEMA IF NOT EXISTS "{tables.schema.schema}";')
    for step in migrate.migrations(dialect.name):
        lines.append(f"\n-- {step.number:04} {step.name}")
        lines += [f"{statement};" for statement in step.statements(dialect, tables)]
        lines.append(f"{migrate.record_statement(dialect, tables, step.number)};")
    return "\n".join(lines)


def upgrade_schema(url: str, namespace: str | None = None) -> list[str]:
    """Apply missing migrations; return the names of the steps applied."""
    dialect, tables = _parts(url, namespace)
    steps = _with_connection(url, namespace, lambda c: migrate.upgrade(c, dialect, tables))
    return [f"{step.number:04} {step.name}" for step in steps]


def check_schema(url: str, namespace: str | None = None) -> int:
    """Return the schema version; raise BackendUnavailable naming what is missing or wrong."""
    _, tables = _parts(url, namespace)

    def check(connection: Connection) -> int:
        migrate.check(connection, tables)
        return migrate.version(connection, tables) or 0

    return _with_connection(url, namespace, check)


def _parts(url: str, namespace: str | None) -> tuple[Dialect, Tables]:
    if url == "memory:":
        raise InvalidInput("memory: has no schema; pass a sqlite:, postgresql: or mysql: URL")
    dialect = dialect_of(url)
    return dialect, dialect.tables(SqlOptions(namespace=namespace).namespace)


def _with_connection(url: str, namespace: str | None, work: Callable[[Connection], T]) -> T:
    dialect, _ = _parts(url, namespace)
    engine = dialect.engine(make_url(url), SqlOptions(connections=1))
    try:
        with engine.begin() as connection:
            return work(connection)
    except SQLAlchemyError as error:
        raise translated(error, dialect, make_url(url), races=1) from error
    finally:
        engine.dispose()
