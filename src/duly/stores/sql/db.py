"""What every verb gets: a connection inside a transaction, the tables, and the differences."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, literal, select

from duly.stores.sql.dialect import Dialect
from duly.stores.sql.schema import Tables


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

    def now_ms(self) -> int:
        """The deciding clock as a number."""
        if self.fixed_now_ms is not None:
            return self.fixed_now_ms
        return int(self.connection.execute(select(self.dialect.now_ms())).scalar_one())
