"""Write many rows in few statements that every driver supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Table, bindparam, insert, update

from duly.stores.sql.db import Db

CHUNK = 500
_MANY = 20
"""Rows from which bound parameters cost more than the database's work."""

T = TypeVar("T")


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield slices small enough for the parameters of one statement."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def insert_all(db: Db, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows, if any; many rows go as one JSON parameter."""
    if len(rows) < _MANY:
        if rows:
            db.connection.execute(insert(table), rows)
        return
    names = ", ".join(rows[0])
    name = db.connection.dialect.identifier_preparer.format_table(table)
    db.run(
        f"INSERT INTO {name} ({names}) SELECT {names} FROM {db.dialect.records(table)}",
        rows=msgspec.json.encode(rows).decode(),
    )


def update_all(db: Db, table: Table, key: str, rows: Sequence[dict[str, Any]]) -> None:
    """Update rows that are found by the column `key`."""
    if not rows:
        return
    # Bound names must differ from column names in an UPDATE.
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in rows[0] if name != key}
    statement = update(table).where(table.c[key] == bindparam(f"new_{key}")).values(values)
    db.connection.execute(
        statement, [{f"new_{name}": value for name, value in row.items()} for row in rows]
    )
