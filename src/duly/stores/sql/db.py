"""The context of every verb: a connection in a transaction, the tables and the dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

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
from duly.stores.sql.dialects.dialect import Dialect, FastDialect
from duly.stores.sql.gaps.search import GapMemory
from duly.stores.sql.schema.tables import Tables

_SHORT_LIST = 500
_TYPES: dict[type, type[BigInteger | Text]] = {int: BigInteger, str: Text}


class LostRace(Exception):
    """A race lost to another transaction; the verb is run again from the start."""


@dataclass(frozen=True, slots=True)
class Db:
    """The context of one transaction."""

    connection: Connection
    tables: Tables
    dialect: Dialect
    fixed_now_ms: int | None = None
    """Time of an injected clock; None: use the database's clock."""
    is_foreign: bool = False
    """The connection is the caller's and may use any driver."""
    is_retry: bool = False
    """An earlier attempt lost a race or violated a unique index."""
    planning: PlanSettings = field(default_factory=PlanSettings)
    gaps: GapMemory = field(default_factory=GapMemory)
    """Gaps in indexes that earlier searches of this store found."""

    @property
    def fast(self) -> FastDialect:
        """The dialect with its set statements, for fast paths."""
        return cast("FastDialect", self.dialect)

    def at(self, now_ms: int) -> Db:
        """Return a copy with the clock fixed at one instant."""
        return replace(self, fixed_now_ms=now_ms)

    def clock(self) -> ColumnElement[int]:
        """Return the deciding clock as an expression: the injected time or the database's."""
        fixed = self.fixed_now_ms
        return self.dialect.now_ms() if fixed is None else literal(fixed)

    def now_ms(self) -> int:
        """Return the time of the deciding clock."""
        if self.fixed_now_ms is not None:
            return self.fixed_now_ms
        return int(self.run("SELECT {now}").scalar_one())

    def following(self, *columns: str, is_strict: bool = False) -> str:
        """Return the SQL condition that a row is at or after the place `:column, ...` in an order.

        If `is_strict`, it is after the place.
        """
        if self.dialect.orders_row_values:
            values = ", ".join(f":{name}" for name in columns)
            return f"({', '.join(columns)}) {'>' if is_strict else '>='} ({values})"
        # The first column bounds a range of the index.
        *before, last = columns
        condition = f"{last} {'>' if is_strict else '>='} :{last}"
        for name in reversed(before):
            condition = f"{name} >= :{name} AND ({name} > :{name} OR ({condition}))"
        return condition

    def run(self, statement: str, **values: Any) -> CursorResult[Any]:
        """Run a plain SQL statement and return its result.

        `{p}` is the prefix of table names, `{now}` the deciding clock, and `IN :name` takes a list
        of texts. `{lock}`, `{skip}` and `{share}` lock the rows found: wait for rows locked by
        other transactions, skip them, or share the lock.

        `{each_of_ids}` joins each id in `m.ids`, a JSON array, as `e.value`, and `{job_of_k}` the
        job `j` whose id is `k.id`, looked up by its key; `{job_of_e}` the one with `e.value`.

        Put a limit into a materialized part: a sub-select under IN may run once per row, with a
        new set of rows each time. Claims use `LIMIT {limit :limit}`, which hides the limit: with an
        unknown one PostgreSQL follows the index that has the order; with a known one, on a table
        that is not analysed yet, it may read and sort the whole table. `{text}` is the type of a
        text in a CAST.
        """
        lists = tuple(name for name, value in values.items() if type(value) is list)
        if self.fixed_now_ms is not None and "{now}" in statement:
            values["now"] = self.fixed_now_ms
        # Some drivers need the types: asyncpg treats an unknown one as text.
        typed = tuple((n, type(v)) for n, v in values.items()) if self.is_foreign else ()
        own_clock = self.fixed_now_ms is None
        clause = _clause(statement, self.dialect, self.tables, lists, own_clock, typed)
        return self.connection.execute(clause, values)


def tuples(result: CursorResult[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the driver's own tuples in batches; for claims, which read thousands of rows.

    Creating a Row for each, all at once, would cost more than the read itself, because it triggers
    full garbage collections.
    """
    cursor: Any = result.cursor
    while found := cursor.fetchmany(_SHORT_LIST):
        yield from found
    result.close()


def columns(result: CursorResult[Any]) -> list[list[Any]]:
    """Return a list for each column of a result.

    No tuple outlives its batch, so the garbage collector has nothing to scan.
    """
    cursor: Any = result.cursor
    turned: list[list[Any]] = [[] for _ in cursor.description]
    while found := cursor.fetchmany(_SHORT_LIST):
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
    clock = f"CAST(:now AS {dialect.whole_type})"
    if own_clock:
        clock = str(dialect.now_ms().compile(compile_kwargs={"literal_binds": True}))
    filled = (
        statement.replace("{each_of_ids}", dialect.each_of_ids)
        .replace("{job_of_k}", dialect.job_of_k)
        .replace("{job_of_e}", dialect.job_of_k.replace("k.id", "e.value"))
        .replace("{text}", dialect.text_type)
        .replace("{p}", dialect.names(tables)[0])
        .replace("{now}", clock)
        .replace("{lock}", dialect.lock)
        .replace("{skip}", dialect.skip_locked)
        .replace("{share}", dialect.share_lock)
    )
    filled = re.sub(r"\{limit (:\w+)\}", lambda found: dialect.limit_form.format(found[1]), filled)
    expanding: list[BindParameter[Any]] = [
        bindparam(name, type_=Text, expanding=True) for name in lists if f"IN :{name}" in filled
    ]
    plain = [
        bindparam(name, type_=_TYPES[kind])
        for name, kind in typed
        if kind in _TYPES and re.search(rf":{name}\b", filled)
    ]
    return text(filled).bindparams(*expanding, *plain)
