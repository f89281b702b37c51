"""Reads of named locks in the memory store."""

from __future__ import annotations

from duly.model.locks import Lock
from duly.rules.checks import check_limit
from duly.stores.memory.tables import Tables


def page(tables: Tables, now_ms: int, name: str | None, after: str, limit: int) -> list[Lock]:
    """Return one page of held locks by name, after a name; or the lock `name`, if held."""
    check_limit(limit)
    return [
        Lock(each, held.owner, held.fence, held.until_ms)
        for each, held in sorted(tables.locks.items())
        if (each > after if name is None else each == name)
        and held.owner is not None
        and held.until_ms > now_ms
    ][:limit]
