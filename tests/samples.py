"""A fixed time and small helpers for the tests of collections."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from duly.stores.memory import MemoryStore

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
T = TypeVar("T")


def run(asked: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asked)


def next_times(store: MemoryStore) -> dict[str, datetime]:
    rows = run(store.list_rows(limit=1_000))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {row.name: epoch + timedelta(milliseconds=row.nominal_ms) for row in rows}


@dataclass(frozen=True)
class Action:
    """A stand-in for an action; only the name is used."""

    name: str
