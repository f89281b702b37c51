"""Connections of one listener: how many are open, and how long a client may keep each waiting.

A connection is counted when it is accepted, before anything of it is read. It wraps the protocol
of whichever HTTP parser is installed, and knows from the ASGI application when a request begins
and ends. `close_late()` closes those whose client is too slow; somebody calls it every second.
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
"""Connections beyond the limit that are read, so that probes are answered and others get a 503."""
LOG_PERIOD_S = 60.0
"""Between two lines about the same trouble."""
Parser = Callable[["Connection"], asyncio.Protocol]
"""Makes the protocol that parses the requests of a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may take."""

    connections: int
    header_s: float
    idle_s: float
    body_s: float

    @classmethod
    def of(cls, settings: Settings, connections: int) -> ConnectionLimits:
        """Return the limits of the settings for so many connections."""
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
        # Both in the order in which they were accepted.
        self._open: dict[Connection, None] = {}
        self._excess: dict[Connection, None] = {}
        self._refused = LogPeriod()

    def __len__(self) -> int:
        """Return how many are open, those beyond the limit included."""
        return len(self._open) + len(self._excess)

    @property
    def is_full(self) -> bool:
        """Whether the next connection is beyond the limit."""
        return len(self._open) >= self.limits.connections

    def admit(self, parser: Parser) -> Connection | None:
        """Return a connection for a socket that was accepted; None: close it at once.

        Beyond the limit a few are admitted to be answered. When all of these are taken, a new one
        replaces the oldest that has sent no request yet.
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
        """Return whether a connection may be served; one beyond the limit may take a free place."""
        if connection in self._excess and not self.is_full:
            del self._excess[connection]
            self._open[connection] = None
        return connection in self._open

    def forget(self, connection: Connection) -> None:
        """Count a connection no more; forgetting it twice is fine."""
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
                "(%d since the last such line); see who holds them, or raise DULY_MAX_CONNECTIONS",
                self.limits.connections,
                refused,
                extra={"event": "http.connections_full", "refused": refused},
            )


class Connection(asyncio.Protocol):
    """One connection, around the protocol that parses it."""

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
        """Whether no request is being answered: the client has to send one."""
        return not self._requests

    @property
    def closes_at_s(self) -> float:
        """When the client has taken too long, by the loop's clock."""
        return min(self._due_at_s, self._reads_until_s)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Answer a request: the client is not waited for, except as long as its body lasts."""
        self._requests += 1
        self._due_at_s = math.inf
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                # The parser closes an idle connection; this is for one that sends a little.
                wait_s = self._limits.idle_s + self._limits.header_s
                self._due_at_s = self._loop.time() + wait_s

    def abort(self) -> None:
        """Close at once, whatever was not sent or read yet, and free its place."""
        self._is_aborted = True
        self._connections.forget(self)
        if self._transport is not None:
            # close() would keep the descriptor until the client has read everything.
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless it lost its place before it was set up."""
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
        """Wait for a client that does not read, for so long as a body may take."""
        self._reads_until_s = self._loop.time() + self._limits.body_s
        self._parser.pause_writing()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._reads_until_s = math.inf
        self._parser.resume_writing()


class LogPeriod:
    """Counts what happens often, for one log line a minute."""

    def __init__(self, period_s: float = LOG_PERIOD_S) -> None:
        self._period_s = period_s
        self._next_at_s = -math.inf
        self._times = 0

    def count(self, now_s: float) -> int:
        """Count once more; return the count since the last line when it is time for one, else 0."""
        self._times += 1
        if now_s < self._next_at_s:
            return 0
        self._next_at_s = now_s + self._period_s
        times, self._times = self._times, 0
        return times
