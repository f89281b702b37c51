"""Databases of peers: a new PostgreSQL database or SQLite file for every candidate."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
from tests.servers import PostgresServer


@dataclass(frozen=True, slots=True)
class Place:
    """One database: its address, how to settle it after enqueueing and how to check completion."""

    address: str
    settle: Callable[[], None]
    is_done: Callable[[], bool]


class Places(Protocol):
    """Creates places of one kind of database."""

    def new(self, question: str) -> AbstractContextManager[Place]:
        """Create a place whose completion is checked by this query; remove it afterwards."""


class PostgresPlaces:
    """Creates databases on one server."""

    def __init__(self, url: str) -> None:
        self._server = PostgresServer(url)

    @contextlib.contextmanager
    def new(self, question: str) -> Iterator[Place]:
        url = self._server.create()
        try:
            with psycopg.connect(url, autocommit=True) as connection:

                def settle() -> None:
                    connection.execute("VACUUM ANALYZE")
                    connection.execute("CHECKPOINT")

                def is_done() -> bool:
                    row = connection.execute(question).fetchone()
                    return row is not None and bool(row[0])

                yield Place(url, settle, is_done)
        finally:
            self._server.drop(url)


class SqlitePlaces:
    """Creates files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def new(self, question: str) -> Iterator[Place]:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            file = str(Path(folder, "jobs.db"))
            with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:

                def settle() -> None:
                    connection.execute("ANALYZE")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

                def is_done() -> bool:
                    return bool(connection.execute(question).fetchone()[0])

                yield Place(file, settle, is_done)
