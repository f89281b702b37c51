"""Write many rows in few statements that every driver supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    ColumnElement,
    Row,
    Table,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
    update,
)

from duly.engine.transaction import Key
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
    if len(rows) < _MANY or not db.dialect.inserts_json_rows:
        if rows:
            db.connection.execute(insert(table), rows)
        return
    names = ", ".join(rows[0])
    name = db.connection.dialect.identifier_preparer.format_table(table)
    db.run(
        f"INSERT INTO {name} ({names}) SELECT {names} FROM {db.dialect.records(table)}",
        rows=msgspec.json.encode(rows).decode(),
    )


def delete_keys(
    db: Db, table: Table, key: Sequence[str], keys: Sequence[Key], among: ColumnElement[bool]
) -> None:
    """Delete rows by their keys; `among` is the condition for all of them."""
    if not keys:
        return
    if db.dialect.deletes_lists_by_index:
        db.connection.execute(delete(table).where(among))
        return
    statement = delete(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in key))
    names = [f"key_{name}" for name in key]
    db.connection.execute(statement, [dict(zip(names, each, strict=True)) for each in keys])


def delete_found(
    db: Db, table: str, key: tuple[str, ...], found: str, returned: str = "", **values: Any
) -> Sequence[Row[Any]]:
    """Delete the rows whose keys a SELECT finds and locks; return columns of the deleted rows.

    The SELECT runs once, so a limit in it holds.
    """
    names = ", ".join(key)
    if db.dialect.deletes_what_it_finds:
        statement = (
            f"DELETE FROM {{p}}{table} WHERE ({names}) IN "
            f"(WITH found AS MATERIALIZED ({found}) SELECT * FROM found)"
        )
        if not returned:
            db.run(statement, **values)
            return []
        return db.run(f"{statement} RETURNING {returned}", **values).all()
    keys = [tuple(row) for row in db.run(found, **values)]
    deleted: list[Row[Any]] = []
    stored: Table = getattr(db.tables, table)
    for chunk in chunks(keys):
        among = tuple_(*(stored.c[name] for name in key)).in_(chunk)
        if returned:
            shown = [stored.c[name] for name in returned.split(", ")]
            deleted += db.connection.execute(select(*shown).where(among)).all()
        delete_keys(db, stored, key, chunk, among)
    return deleted


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
