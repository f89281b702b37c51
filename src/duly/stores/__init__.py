"""Stores, opened by URL: memory (the reference) and the SQL stores."""

from __future__ import annotations

from typing import Any

from duly.clock import Clock
from duly.stores.memory import MemoryStore
from duly.stores.port import Store

__all__ = ["MemoryStore", "open_store"]


def open_store(url: str, *, clock: Clock | None = None, **options: Any) -> Store:
    """Open `memory:`, `sqlite:///file.db` or `postgresql://…`, and connect before returning.

    Options are the fields of duly.stores.sql.options.SqlOptions, such as namespace= and
    skip_schema_init=. A clock is for tests; without one, the database's clock is used.
    """
    if url == "memory:":
        return MemoryStore(clock, planning=options.get("planning"))
    # SQLAlchemy takes most of a second to import; import it only if needed.
    from duly.stores.sql.opening import open_sql_store

    return open_sql_store(url, clock, **options)
