"""What every verb gets: a connection inside a transaction, the tables, and the differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, literal, select

from duly.stores.sql.dialect import Dialect
from duly.stores.sql.schema import Tables

_FEW = 500


@dataclass(frozen=True, slots=True)
class Db:
    """One transaction's hands."""

    connection: Connection
    tables: Tables
    dialect: Dialect
    fixed_now_ms: int | None = None
    """An injected clock's time; None: the database's clock."""

    def clock(self, now_ms: int | None = None) -> ColumnElement[int]:
        """The deciding clock as an expression: asked for, injected, or the database's own."""
        fixed = self.fixed_now_ms if now_ms is None else now_ms
        return self.dialect.now_ms() if fixed is None else literal(fixed)

    def tuples(self, statement: Select[Any]) -> Iterator[tuple[Any, ...]]:
        """The driver's own tuples, a few at a time; for claims, which read thousands of rows.

        A Row for each, and all of them at once, would cost more than the reading: the garbage
        collector would go through the whole process for them.
        """
        result = self.connection.execute(statement)
        cursor: Any = result.cursor
        while found := cursor.fetchmany(_FEW):
            yield from found
        result.close()

    def now_ms(self) -> int:
        """The deciding clock as a number."""
        if self.fixed_now_ms is not None:
            return self.fixed_now_ms
        return int(self.connection.execute(select(self.dialect.now_ms())).scalar_one())
