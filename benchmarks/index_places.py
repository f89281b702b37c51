"""A database with Duly's own schema, and the bare driver at work in it.

The driver's claim is the limit: the statements that Duly sends, the same tables and indexes, the
same durability, but no library above the driver and next times that were worked out before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from sqlalchemy import Engine

from benchmarks.index_rows import Backlog, Move
from duly.stores import open_store


class Place(Protocol):
    """One database. Only `claim` is ever timed."""

    url: str

    def refill(self, backlog: Backlog) -> None:
        """Make the index hold these rows and no others, tidy and on disk."""

    def claim(self, now_ms: int, limit: int, moves: Mapping[int, Move]) -> int:
        """Claim and advance once with the bare driver; gives how many rows."""

    def moves(self) -> dict[int, Move]:
        """Where the rows stand now: after a drain, the answers that the bare driver is given."""

    def fill_waiting(self, count: int, texts: Sequence[str]) -> None:
        """Store rows none of which is due for an hour, numbered from 0."""

    def make_due(self, numbers: Sequence[int], at_ms: int) -> None:
        """Set some rows back to a time that has come."""

    def settings(self) -> dict[str, str]:
        """What the figures depend on, asked of the database itself."""

    def close(self) -> None:
        """Let go of it."""


class Database(Protocol):
    """Makes places of one kind."""

    name: str
    tidy: str
    """The statement that clears away what updates of the peer left behind."""

    def place(self, purpose: str) -> Place:
        """A new one with an empty index."""

    def peer_engines(self) -> dict[str, Engine]:
        """Where the peer keeps its jobs, by what is said of it there; just as durable."""


def make_schema(url: str) -> None:
    """The tables and indexes as Duly makes them."""
    asyncio.run(open_store(url).close())
