"""Stores, opened by URL: memory (the reference) and the SQL stores."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from duly.clock import Clock
from duly.errors import InvalidInput
from duly.stores.memory import MemoryStore
from duly.stores.port import Store
from duly.stores.sql.options import SqlOptions

__all__ = ["MemoryStore", "open_store"]


def open_store(
    url: str, *, clock: Clock | None = None, options: SqlOptions | None = None, **words: Any
) -> Store:
    """Open `memory:`, `sqlite:///file.db`, `postgresql://…` or `mysql://…`, and connect.

    Fields of SqlOptions may be passed as keywords as well, such as namespace= and
    skip_schema_init=; the memory store has no use for most of them. A clock is for tests; without
    one, the database's clock is used.
    """
    unknown = sorted(set(words) - {each.name for each in fields(SqlOptions)})
    if unknown:
        known = ", ".join(each.name for each in fields(SqlOptions))
        raise InvalidInput(f"unknown option {unknown[0]!r}; known: {known}")
    options = replace(SqlOptions() if options is None else options, **words)
    if url == "memory:":
        return MemoryStore(clock, planning=options.planning)
    # SQLAlchemy takes most of a second to import; import it only if needed.
    from duly.stores.sql.opening import open_sql_store

    return open_sql_store(url, clock, options)
