"""Read, lock and write items that are one row of one table, by key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import (
    Row,
    Select,
    Table,
    Update,
    bindparam,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from duly.engine.transaction import Change, Key, Kind
from duly.stores.sql.bulk import chunks, delete_keys, insert_all
from duly.stores.sql.db import Db

T = TypeVar("T")
Values = dict[str, Any]
DEFAULT = text("DEFAULT")
"""As a value: use the column's default."""


@dataclass(frozen=True, slots=True)
class Mapped(Generic[T]):
    """The mapping of a kind of item to one table."""

    kind: Kind[T]
    table: str
    """Field name in `Tables`."""
    key: tuple[str, ...]
    """Key columns, in the order of the parts of the item's key."""
    read: Callable[[Row[Any]], T]
    values: Callable[[T], Values]
    """Return all columns of an item, including keys."""
    only: tuple[tuple[str, str], ...] = ()
    """Columns and values that select the rows of this kind in a shared table."""
    index: str = "PRIMARY"
    """Index of the key, for databases where a statement must name it."""

    def load(self, db: Db, keys: Sequence[Key], *, hold: bool) -> dict[Key, T]:
        """Return items by key; with `hold`, lock their rows in key order."""
        return {key: self.read(row) for key, row in self.rows(db, keys, hold=hold).items()}

    def rows(self, db: Db, keys: Sequence[Key], *, hold: bool) -> dict[Key, Row[Any]]:
        """Return rows by key; with `hold`, lock them in key order."""
        table = getattr(db.tables, self.table)
        if len(keys) == 1:
            statement = _select_one(table, self.key, self.only, hold=hold)
            given = dict(zip(self.key, keys[0], strict=True))
            row = db.connection.execute(statement, given).first()
            return {} if row is None else {keys[0]: row}
        columns = [table.c[name] for name in self.key]
        found: dict[Key, Row[Any]] = {}
        for chunk in chunks(keys):
            statement = select(table).where(self._among(db, chunk))
            if hold:
                statement = statement.order_by(*columns).with_for_update()
                statement = db.dialect.held_by(statement, table, self.index)
            for row in db.connection.execute(statement):
                found[tuple(getattr(row, name) for name in self.key)] = row
        return found

    def _among(self, db: Db, keys: Sequence[Key]) -> ColumnElement[bool]:
        table = getattr(db.tables, self.table)
        columns = [table.c[name] for name in self.key]
        if len(columns) == 1:
            condition: ColumnElement[bool] = columns[0].in_([key[0] for key in keys])
        elif len(keys) == 1:
            condition = _equal(columns, keys[0])
        elif db.dialect.finds_row_values:
            condition = tuple_(*columns).in_(cast("Any", list(keys)))
        else:
            condition = or_(*(_equal(columns, key) for key in keys))
        for name, value in self.only:
            condition &= table.c[name] == value
        return condition

    def write(self, db: Db, changes: Mapping[Key, Change]) -> None:
        """Delete, update and insert the changes of a transaction, in key order."""
        ordered = sorted(changes.items())
        self.remove(db, [key for key, each in ordered if each.after is None and each.before])
        self.update(db, [each for _, each in ordered if each.before and each.after])
        self.insert(db, [each.after for _, each in ordered if each.after and not each.before])

    def remove(self, db: Db, keys: Sequence[Key]) -> None:
        """Delete rows by their keys."""
        table = getattr(db.tables, self.table)
        for chunk in chunks(keys):
            delete_keys(db, table, self.key, chunk, self._among(db, chunk))

    def insert(self, db: Db, items: Sequence[T]) -> None:
        """Insert rows."""
        insert_all(db, getattr(db.tables, self.table), [self.values(item) for item in items])

    def update(self, db: Db, changes: Sequence[Change]) -> None:
        """Update changed columns, batching rows that change the same ones."""
        pairs = [(self.values(each.before), self.values(each.after)) for each in changes]
        self.set_values(db, [(new, changed(old, new)) for old, new in pairs])

    def set_values(self, db: Db, rows: Sequence[tuple[Values, Values]]) -> None:
        """Update columns; each row is a pair of values that contain its key, and values to set."""
        table = getattr(db.tables, self.table)
        shapes: dict[tuple[str, ...], list[Values]] = defaultdict(list)
        for whole, values in rows:
            defaults = tuple(f"={name}" for name, value in values.items() if value is DEFAULT)
            plain = {name: value for name, value in values.items() if value is not DEFAULT}
            if values:
                keys = {f"key_{name}": whole[name] for name in self.key}
                new = {f"new_{name}": value for name, value in plain.items()}
                shapes[*plain, *defaults].append(keys | new)
        for names, given in shapes.items():
            db.connection.execute(_update(table, self.key, self.only, names), given)


# Statements are cached: building one can take longer than running it.
@lru_cache(maxsize=256)
def _select_one(
    table: Table, key: tuple[str, ...], only: tuple[tuple[str, str], ...], *, hold: bool
) -> Select[Any]:
    where = [table.c[name] == bindparam(name) for name in key]
    statement = select(table).where(*where, *(table.c[name] == value for name, value in only))
    return statement.with_for_update() if hold else statement


@lru_cache(maxsize=256)
def _update(
    table: Table,
    key: tuple[str, ...],
    only: tuple[tuple[str, str], ...],
    names: tuple[str, ...],
) -> Update:
    """Return an UPDATE of columns; a name prefixed with "=" is set to its default."""
    where = [table.c[name] == bindparam(f"key_{name}") for name in key]
    where += [table.c[name] == value for name, value in only]
    sets = {
        name.removeprefix("="): DEFAULT if name[0] == "=" else bindparam(f"new_{name}")
        for name in names
    }
    return update(table).where(*where).values(cast("Any", sets))


def changed(old: Values, new: Values) -> Values:
    """Return the new values that differ."""
    return {name: value for name, value in new.items() if old.get(name) != value}


def _equal(columns: Sequence[ColumnElement[Any]], key: Key) -> ColumnElement[bool]:
    condition = columns[0] == key[0]
    for column, part in zip(columns[1:], key[1:], strict=True):
        condition &= column == part
    return condition
