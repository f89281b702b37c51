"""PostgreSQL: psycopg connections with a deadline for each statement.

The only module that extends the driver; import it after `import psycopg` has succeeded. If a peer
accepts data and never answers, TCP reports no error and the server's `statement_timeout` does not
reach the client, so the client has to end the wait.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen


class NoAnswer(psycopg.OperationalError):
    """A statement without an answer within the deadline; the connection is closed."""


class ReadOnlyServer(psycopg.OperationalError):
    """A read-only server, which sends no notifications."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server is silent for too long."""

    deadline_s: float | None = None
    """Seconds the server may be silent during a statement; None: no limit."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Run a generator of the driver, which wakes up several times a second."""
        if self.deadline_s is not None:
            gen = self._bounded(gen, self.deadline_s)
        return super().wait(gen, *args, **kwargs)

    def _bounded(self, gen: PQGen[RV], deadline_s: float) -> Generator[Any, Any, RV]:
        ends_at = time.monotonic() + deadline_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:  # each part of a long batch or result counts as an answer
                    ends_at = time.monotonic() + deadline_s
                elif time.monotonic() >= ends_at:
                    # Closed first: SQLAlchemy then sees that the connection is gone.
                    self.close()
                    raise NoAnswer(f"no answer for {deadline_s:g} s; the connection was closed")
                wanted = gen.send(ready)
        except StopIteration as ended:
            result: RV = ended.value
            return result
