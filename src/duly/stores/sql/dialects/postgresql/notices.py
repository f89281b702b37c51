"""PostgreSQL: notifications of new jobs.

A thread LISTENs on its own connection. Notifications are hints: a worker that misses one finds the
job at its next poll. LISTEN needs a direct connection; a transaction-mode pooler delivers nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.engine import URL

log = logging.getLogger(__name__)

_TICK_S = 1.0
"""Seconds until the thread notices that it should stop, at most."""
_RETRY_S = 2.0
_CHECK_S = 5.0
"""Seconds of silence after which the server is asked whether it is alive and the primary."""


class Listener:
    """A thread that calls `wake` with every notification until it is closed."""

    def __init__(
        self,
        url: URL,
        parameters: Mapping[str, Any],
        deadline_s: float,
        channel: str,
        wake: Callable[[str], None],
    ) -> None:
        self._url = url
        self._parameters = parameters
        self._deadline_s = deadline_s
        self._channel = channel
        self._wake = wake
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duly-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask the thread to stop; it does so within about a second."""
        self._closed.set()

    def _say(self, hint: str) -> None:
        if not self._closed.is_set():
            self._wake(hint)

    def _run(self) -> None:
        import psycopg
        from sqlalchemy.dialects.postgresql.psycopg import dialect

        _, given = dialect().create_connect_args(self._url)  # type: ignore[no-untyped-call]
        given |= {**self._parameters, "autocommit": True}
        while not self._closed.is_set():
            try:
                self._listen(given)
            except psycopg.Error as error:
                log.warning(
                    "LISTEN connection failed, reconnecting: %s",
                    str(error).split("\n", 1)[0],
                    extra={"event": "store.not_listening"},
                )
                self._closed.wait(_RETRY_S)

    def _listen(self, given: Mapping[str, Any]) -> None:
        """Listen on one connection until it fails or the listener is closed."""
        from duly.stores.sql.dialects.postgresql.driver import BoundedConnection, ReadOnlyServer

        with BoundedConnection.connect(**given) as connection:
            connection.deadline_s = self._deadline_s
            connection.execute(f'LISTEN "{self._channel}"')
            self._say("queue:*")  # covers notifications missed before LISTEN
            heard_at = time.monotonic()
            while not self._closed.is_set():
                for notice in connection.notifies(timeout=_TICK_S):
                    heard_at = time.monotonic()
                    self._say(notice.payload)
                if time.monotonic() - heard_at >= _CHECK_S:
                    found = connection.execute("SHOW transaction_read_only").fetchone()
                    if found == ("on",):
                        raise ReadOnlyServer("the server is read-only; its primary is elsewhere")
                    heard_at = time.monotonic()
