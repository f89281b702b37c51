"""Databases with Duly's schema, in which the bare driver works.

The driver's claim is the upper limit: the same statements, tables, indexes and durability as
Duly's, but without a library above the driver and with precomputed next times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from sqlalchemy import Engine

from benchmarks.index_rows import Backlog, Move
from duly.stores import open_store


class Place(Protocol):
    """One database. Only `claim` is timed."""

    url: str

    def refill(self, backlog: Backlog) -> None:
        """Replace the rows of the index by these, then vacuum and checkpoint."""

    def claim(self, now_ms: int, limit: int, moves: Mapping[int, Move]) -> int:
        """Claim and advance once with the bare driver; return the number of rows."""

    def moves(self) -> dict[int, Move]:
        """Return the current times of all rows; after a drain, the bare driver is given these."""

    def fill_waiting(self, count: int, texts: Sequence[str]) -> None:
        """Store `count` rows, numbered from 0, none of which is due within an hour."""

    def make_due(self, numbers: Sequence[int], at_ms: int) -> None:
        """Set some rows to a time in the past."""

    def settings(self) -> dict[str, str]:
        """Return the version and durability settings, read from the database."""

    def close(self) -> None:
        """Close the database."""


class Database(Protocol):
    """Creates places of one kind of database."""

    name: str
    tidy: str
    """The statement that vacuums after updates of the peer."""

    def place(self, purpose: str) -> Place:
        """Create a place with an empty index."""

    def peer_engines(self) -> dict[str, Engine]:
        """Return engines for the peer's jobs by name, with the same durability."""


def make_schema(url: str) -> None:
    """Create the tables and indexes as Duly does."""
    asyncio.run(open_store(url).close())
