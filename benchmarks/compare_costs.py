"""Reads the cost of a store: CPU time and rows of its PostgreSQL backend, and its statements.

Used in the process that runs the workload. Linux only: other systems have no CPU clock of another
process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import psycopg
from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool

_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel: user and system time together, in ns."""
_QUIET_S = 30.0
_ROWS = (
    "SELECT tup_returned + tup_fetched + tup_inserted + tup_updated + tup_deleted "
    "FROM pg_stat_database WHERE datname = %s"
)
_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = %s AND pid <> %s AND backend_type = 'client backend'"
)


class Server:
    """The backend of the only connection of a store; create it before the store."""

    def __init__(self, stats_url: str) -> None:
        # Connects to another database, so that reading statistics does not change them.
        self._stats = psycopg.connect(stats_url, autocommit=True)
        self._opened: list[psycopg.Connection[Any]] = []
        event.listen(Pool, "connect", lambda connection, _: self._opened.append(connection))

    def cpu_ns(self) -> int:
        """Return the CPU time that the backend has used so far."""
        pid = self._connection.info.backend_pid
        return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK)

    def rows(self) -> int:
        """Return how many rows the server has read and written in the database so far.

        The backend flushes its statistics on request. Other backends, which vacuumed the tables,
        report when they end, so this waits for them.
        """
        connection = self._connection
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.commit()
        name, pid = connection.info.dbname, connection.info.backend_pid
        gives_up_at = time.monotonic() + _QUIET_S
        while self._number(_OTHERS, name, pid):
            if time.monotonic() > gives_up_at:
                raise RuntimeError(f"another connection to {name} stays open")
        return self._number(_ROWS, name)

    @property
    def _connection(self) -> psycopg.Connection[Any]:
        """Return the connection of the store, which is idle between calls."""
        (connection,) = self._opened
        return connection

    def _number(self, query: str, *values: object) -> int:
        row = self._stats.execute(query, values).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        """Close the connection that reads statistics."""
        self._stats.close()


@contextmanager
def recorded(*, has_server: bool) -> Iterator[Counter[str]]:
    """Count the statements sent during the block by text; each COMMIT counts as one.

    On PostgreSQL they are counted in the driver, since COPY and savepoints bypass SQLAlchemy; on
    SQLite in SQLAlchemy. An executemany counts as one.
    """
    found: Counter[str] = Counter()

    def note(statement: object) -> None:
        found[" ".join(str(statement).split())] += 1

    with ExitStack() as ends:
        _listen(ends, "commit", lambda _connection: note("COMMIT"))
        if has_server:
            for name in ("execute", "executemany", "copy"):
                noting = _noting(getattr(psycopg.Cursor, name), note)
                ends.enter_context(mock.patch.object(psycopg.Cursor, name, noting))
        else:
            _listen(
                ends,
                "before_cursor_execute",
                lambda _connection, _cursor, statement, *_: note(statement),
            )
        yield found


def _listen(ends: ExitStack, name: str, listener: Callable[..., None]) -> None:
    event.listen(Engine, name, listener)
    ends.callback(event.remove, Engine, name, listener)


def _noting(method: Callable[..., Any], note: Callable[[object], None]) -> Callable[..., Any]:
    def called(cursor: object, statement: object, *args: Any, **kwargs: Any) -> Any:
        note(statement)
        return method(cursor, statement, *args, **kwargs)

    return called
