"""Connections of one listener: a limit on their number, and timeouts for slow clients.

A connection is counted when it is accepted, before anything is read. It wraps the protocol of the
installed HTTP parser, and learns from the ASGI application when a request begins and ends.
`close_late()`, called every second, closes those whose client is too slow.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from duly.settings import Settings

log = logging.getLogger(__name__)

PROBE_RESERVE = 16
"""Connections beyond the limit that are still read, for probes and for 503 answers."""
LOG_PERIOD_S = 60.0
"""Seconds between two log lines about the same problem."""
Parser = Callable[["Connection"], asyncio.Protocol]
"""Makes the protocol that parses the requests of a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a listener: number of connections, and timeouts in seconds."""

    connections: int
    header_s: float
    idle_s: float
    body_s: float

    @classmethod
    def of(cls, settings: Settings, connections: int) -> ConnectionLimits:
        """Return the limits of the settings, for a number of connections."""
        return cls(
            connections,
            settings.header_timeout_s,
            settings.idle_timeout_s,
            settings.body_timeout_s,
        )


class Connections:
    """The open connections of one listener."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        # Both in order of acceptance.
        self._open: dict[Connection, None] = {}
        self._excess: dict[Connection, None] = {}
        self._refused = LogPeriod()

    def __len__(self) -> int:
        """Return the number of open connections, including those beyond the limit."""
        return len(self._open) + len(self._excess)

    @property
    def is_full(self) -> bool:
        """True if the next connection is beyond the limit."""
        return len(self._open) >= self.limits.connections

    def admit(self, parser: Parser) -> Connection | None:
        """Return a connection for an accepted socket; None: close it at once.

        Beyond the limit, PROBE_RESERVE further ones are admitted. When all of these are taken, a
        new one replaces the oldest that has sent no request yet.
        """
        if self.is_full:
            self._tell_full()
            if len(self._excess) >= PROBE_RESERVE:
                oldest = next((each for each in self._excess if each.is_waiting), None)
                if oldest is None:
                    return None
                oldest.abort()
        admitted = self._excess if self.is_full else self._open
        connection = Connection(self, parser)
        admitted[connection] = None
        return connection

    def is_within_limit(self, connection: Connection) -> bool:
        """Return whether a connection may be served; one beyond the limit takes a free place."""
        if connection in self._excess and not self.is_full:
            del self._excess[connection]
            self._open[connection] = None
        return connection in self._open

    def forget(self, connection: Connection) -> None:
        """Remove a connection from the count; idempotent."""
        self._open.pop(connection, None)
        self._excess.pop(connection, None)

    def close_late(self, now_s: float) -> int:
        """Close connections whose client took too long; return how many."""
        late = [each for each in (*self._open, *self._excess) if each.closes_at_s <= now_s]
        for each in late:
            each.abort()
        return len(late)

    def _tell_full(self) -> None:
        refused = self._refused.count(asyncio.get_running_loop().time())
        if refused:
            log.warning(
                "all %d HTTP connections are in use; further ones are closed or answered 503 "
                "(%d since the last such line); check which clients hold them, or raise "
                "DULY_MAX_CONNECTIONS",
                self.limits.connections,
                refused,
                extra={"event": "http.connections_full", "refused": refused},
            )


class Connection(asyncio.Protocol):
    """One connection, wrapping the protocol that parses it."""

    def __init__(self, connections: Connections, parser: Parser) -> None:
        self._loop = asyncio.get_running_loop()
        self._connections = connections
        self._limits = connections.limits
        self._transport: asyncio.Transport | None = None
        self._is_aborted = False
        self._requests = 0
        self._due_at_s = self._loop.time() + self._limits.header_s
        self._reads_until_s = math.inf
        self._parser = parser(self)

    @property
    def is_waiting(self) -> bool:
        """True if no request is being answered, so that the client has to send one."""
        return not self._requests

    @property
    def closes_at_s(self) -> float:
        """Deadline of the client, by the loop's clock."""
        return min(self._due_at_s, self._reads_until_s)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Suspend the deadline for requests while one is answered; its body has its own."""
        self._requests += 1
        self._due_at_s = math.inf
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                # The parser closes an idle connection; this covers a client that sends slowly.
                wait_s = self._limits.idle_s + self._limits.header_s
                self._due_at_s = self._loop.time() + wait_s

    def abort(self) -> None:
        """Close at once, drop unsent and unread data, and free the place."""
        self._is_aborted = True
        self._connections.forget(self)
        if self._transport is not None:
            # close() would hold the descriptor until the client has read everything.
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start parsing; abort if the connection lost its place before setup."""
        self._transport = cast(asyncio.Transport, transport)
        self._parser.connection_made(transport)
        if self._is_aborted:
            self._transport.abort()

    def data_received(self, part: bytes) -> None:
        """Let the parser read."""
        self._parser.data_received(part)

    def eof_received(self) -> bool | None:
        """Let the parser decide whether to keep its side open."""
        return self._parser.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free its place."""
        self._connections.forget(self)
        self._parser.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause for a client that does not read, for at most the body timeout."""
        self._reads_until_s = self._loop.time() + self._limits.body_s
        self._parser.pause_writing()

    def resume_writing(self) -> None:
        """Resume after the client has read."""
        self._reads_until_s = math.inf
        self._parser.resume_writing()


class LogPeriod:
    """Counter of frequent events, for one log line per period."""

    def __init__(self, period_s: float = LOG_PERIOD_S) -> None:
        self._period_s = period_s
        self._next_at_s = -math.inf
        self._times = 0

    def count(self, now_s: float) -> int:
        """Count an event; return the count since the last line if one is due, else 0."""
        self._times += 1
        if now_s < self._next_at_s:
            return 0
        self._next_at_s = now_s + self._period_s
        times, self._times = self._times, 0
        return times
