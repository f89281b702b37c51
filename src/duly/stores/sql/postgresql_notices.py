"""PostgreSQL: hearing of new jobs.

A thread with a connection of its own that LISTENs. Only a hint: whoever misses a notice finds the
job at the next poll. It needs a direct connection; a transaction-mode pooler delivers nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy.engine import URL

log = logging.getLogger(__name__)

_TICK_S = 1.0
"""How soon the thread sees that it should end."""
_RETRY_S = 2.0


class Listener:
    """Calls `wake` with every notice until it is closed."""

    def __init__(self, url: URL, channel: str, wake: Callable[[str], None]) -> None:
        self._url = url
        self._channel = channel
        self._wake = wake
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duly-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; it may take a moment to notice."""
        self._closed.set()

    def _say(self, hint: str) -> None:
        if not self._closed.is_set():
            self._wake(hint)

    def _run(self) -> None:
        import psycopg
        from sqlalchemy.dialects.postgresql.psycopg import dialect

        _, given = dialect().create_connect_args(self._url)  # type: ignore[no-untyped-call]
        given |= {"autocommit": True, "connect_timeout": 5}
        while not self._closed.is_set():
            try:
                with psycopg.connect(**given) as connection:
                    connection.execute(f'LISTEN "{self._channel}"')
                    self._say("queue:*")  # whatever came while nobody listened
                    while not self._closed.is_set():
                        for notice in connection.notifies(timeout=_TICK_S):
                            self._say(notice.payload)
            except psycopg.Error as error:
                log.warning(
                    "not listening, trying again: %s",
                    str(error).split("\n", 1)[0],
                    extra={"event": "store.not_listening"},
                )
                self._closed.wait(_RETRY_S)
