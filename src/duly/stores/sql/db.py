"""What every verb gets: a connection inside a transaction, the tables, and the differences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    CursorResult,
    Text,
    bindparam,
    literal,
    text,
)
from sqlalchemy.sql.elements import BindParameter, TextClause

from duly.model.plans import PlanSettings
from duly.stores.sql.dialects.dialect import Dialect
from duly.stores.sql.gaps.search import GapMemory
from duly.stores.sql.schema.tables import Tables

_FEW = 500
_TYPES: dict[type, type[BigInteger | Text]] = {int: BigInteger, str: Text}


class LostRace(Exception):
    """Somebody was first: run again from the start, the verb sees what they did."""


@dataclass(frozen=True, slots=True)
class Db:
    """One transaction's hands."""

    connection: Connection
    tables: Tables
    dialect: Dialect
    fixed_now_ms: int | None = None
    """An injected clock's time; None: the database's clock."""
    is_foreign: bool = False
    """The connection is the caller's, on a driver that may be any."""
    is_retry: bool = False
    """An earlier run lost a race or was refused by a unique index."""
    planning: PlanSettings = field(default_factory=PlanSettings)
    gaps: GapMemory = field(default_factory=GapMemory)
    """What the store remembers of its searches."""

    def at(self, now_ms: int) -> Db:
        """The same with the clock held: one instant for everything that is decided from now on."""
        return replace(self, fixed_now_ms=now_ms)

    def clock(self) -> ColumnElement[int]:
        """The deciding clock as an expression: injected, or the database's own."""
        fixed = self.fixed_now_ms
        return self.dialect.now_ms() if fixed is None else literal(fixed)

    def now_ms(self) -> int:
        """The deciding clock as a number."""
        if self.fixed_now_ms is not None:
            return self.fixed_now_ms
        return int(self.run("SELECT {now}").scalar_one())

    def run(self, statement: str, **values: Any) -> CursorResult[Any]:
        """Run a statement of plain SQL.

        In it `{p}` is the prefix of table names, `{now}` the deciding clock, and `IN :name` takes
        a list of texts. `{lock}`, `{skip}` and `{share}` lock the rows found: wait for those that
        others hold, skip them, or share them.

        `{each_of_ids}` joins each id in `m.ids`, a JSON array, as `e.value`, and `{job_of_k}` the
        job `j` whose id is `k.id`, looked up by its key.

        A limit stands in a materialized part: a sub-select under IN may be run again for each row,
        and then finds as many rows each time. `LIMIT (SELECT :limit)` is for claims: with a limit
        that it does not know, PostgreSQL follows the index that has the order; knowing it, and
        little of a table that is not analysed yet, it may read and sort all of it each time.
        """
        lists = tuple(name for name, value in values.items() if type(value) is list)
        if self.fixed_now_ms is not None and "{now}" in statement:
            values["now"] = self.fixed_now_ms
        # Some drivers must be told the types: asyncpg takes an unknown one for a text.
        typed = tuple((n, type(v)) for n, v in values.items()) if self.is_foreign else ()
        own_clock = self.fixed_now_ms is None
        clause = _clause(statement, self.dialect, self.tables, lists, own_clock, typed)
        return self.connection.execute(clause, values)


def tuples(result: CursorResult[Any]) -> Iterator[tuple[Any, ...]]:
    """The driver's own tuples, a few at a time; for claims, which read thousands of rows.

    A Row for each, and all of them at once, would cost more than the reading: the garbage
    collector would go through the whole process for them.
    """
    cursor: Any = result.cursor
    while found := cursor.fetchmany(_FEW):
        yield from found
    result.close()


def columns(result: CursorResult[Any]) -> list[list[Any]]:
    """The same turned: a list for each column.

    No tuple outlives its part, so that the garbage collector has nothing to look at.
    """
    cursor: Any = result.cursor
    turned: list[list[Any]] = [[] for _ in cursor.description]
    while found := cursor.fetchmany(_FEW):
        for i, column in enumerate(turned):
            column += [row[i] for row in found]
    result.close()
    return turned


@lru_cache(maxsize=1024)
def _clause(
    statement: str,
    dialect: Dialect,
    tables: Tables,
    lists: tuple[str, ...],
    own_clock: bool,
    typed: tuple[tuple[str, type], ...],
) -> TextClause:
    clock = "CAST(:now AS bigint)"
    if own_clock:
        clock = str(dialect.now_ms().compile(compile_kwargs={"literal_binds": True}))
    filled = (
        statement.replace("{each_of_ids}", dialect.each_of_ids)
        .replace("{job_of_k}", dialect.job_of_k)
        .replace("{p}", dialect.names(tables)[0])
        .replace("{now}", clock)
        .replace("{lock}", dialect.lock)
        .replace("{skip}", dialect.skip_locked)
        .replace("{share}", dialect.share_lock)
    )
    expanding: list[BindParameter[Any]] = [
        bindparam(name, type_=Text, expanding=True) for name in lists if f"IN :{name}" in filled
    ]
    plain = [
        bindparam(name, type_=_TYPES[kind])
        for name, kind in typed
        if kind in _TYPES and re.search(rf":{name}\b", filled)
    ]
    return text(filled).bindparams(*expanding, *plain)
