"""PostgreSQL: what differs.

Rows are claimed past other transactions' locks, arrays carry a batch in one statement, and guards
are transaction-scoped advisory locks, which a transaction-mode pooler keeps intact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Table,
    any_,
    cast,
    create_engine,
    func,
    literal,
    text,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError

from duly.errors import InvalidInput
from duly.occurrences import Advance
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.schema import PREFIX, Tables, make_tables

_RACES = {"40001", "40P01", "23505"}
"""Serialization failure, deadlock, unique violation."""


class PostgresqlDialect:
    """The differences of PostgreSQL."""

    name = "postgresql"

    def engine(self, url: URL, options: SqlOptions) -> Engine:
        """An engine that sets READ COMMITTED itself, whatever the server's default is."""
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise InvalidInput(
                "postgresql needs the psycopg driver; run: pip install 'duly[postgres]'"
            ) from None
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="READ COMMITTED",
            pool_size=options.connections,
            max_overflow=0,
            pool_pre_ping=False,
            connect_args={
                "prepare_threshold": 5 if options.prepared_statements else None,
                "connect_timeout": 5,
                "application_name": "duly",
            },
        )

    def faults(self) -> list[str]:
        """None known."""
        return []

    def tables(self, namespace: str | None) -> Tables:
        """A namespace is a schema."""
        return make_tables(PREFIX, namespace)

    def names(self, tables: Tables) -> tuple[str, str]:
        """Tables are qualified; an index always lives in the schema of its table."""
        schema = tables.schema.schema
        return (PREFIX if schema is None else f'"{schema}".{PREFIX}'), PREFIX

    def now_ms(self) -> ColumnElement[int]:
        """The server's clock at the start of the statement: stable, so an index can use it."""
        return cast(func.extract("epoch", func.statement_timestamp()) * 1000, BigInteger)

    def guard_schema(self, connection: Connection, tables: Tables) -> None:
        """A transaction-scoped advisory lock, and the schema of the namespace."""
        schema = tables.schema.schema
        self._lock(connection, f"duly schema {schema}")
        if schema is not None:
            connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')

    def guard_claim(self, connection: Connection, tables: Tables, claim_id: str) -> None:
        """A transaction-scoped advisory lock on the claim id."""
        self._lock(connection, f"duly claim {tables.schema.schema} {claim_id}")

    def _lock(self, connection: Connection, name: str) -> None:
        connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name}
        )

    def insert_or_ignore(self, table: Table) -> Any:
        """An INSERT that leaves an existing row alone."""
        return insert(table).on_conflict_do_nothing()

    def among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """An array."""
        return column == any_(cast(literal(_array(numbers)), ARRAY(BigInteger)))

    def advance_rows(
        self,
        connection: Connection,
        tables: Tables,
        numbers: Sequence[int],
        moves: Sequence[Advance],
    ) -> None:
        """One UPDATE from four arrays."""
        prefix, _ = self.names(tables)
        statement = text(
            f"UPDATE {prefix}schedule_index AS i SET nominal_ms = v.nominal_ms, "  # noqa: S608
            "run_at_ms = v.run_at_ms, runs_left = v.runs_left, version = i.version + 1 "
            "FROM unnest(CAST(:numbers AS bigint[]), CAST(:nominal AS bigint[]), "
            "CAST(:run_at AS bigint[]), CAST(:runs_left AS integer[])) "
            "AS v (row_id, nominal_ms, run_at_ms, runs_left) "
            "WHERE i.row_id = v.row_id"
        )
        connection.execute(
            statement,
            {
                "numbers": _array(numbers),
                "nominal": _array([move.nominal_ms for move in moves]),
                "run_at": _array([move.run_at_ms for move in moves]),
                "runs_left": _array([move.runs_left for move in moves]),
            },
        )

    def is_race(self, error: DBAPIError) -> bool:
        """Somebody else was first; the transaction was rolled back."""
        return isinstance(error, IntegrityError) or getattr(error.orig, "sqlstate", "") in _RACES

    def after_commit(self, engine: Engine) -> None:
        """Nothing to do."""


def _array(numbers: Sequence[int | None]) -> str:
    """An array as PostgreSQL writes it: thousands of numbers as one text cost the driver least."""
    return "{" + ",".join(["NULL" if each is None else str(each) for each in numbers]) + "}"
