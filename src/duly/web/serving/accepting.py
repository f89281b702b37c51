"""Uvicorn server with a bounded accept loop.

asyncio's own loop accepts the whole backlog before it serves the first connection, and without a
free descriptor it logs an error for each of them, every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn

from duly.web.serving.connections import PROBE_RESERVE, Connection, Connections, LogPeriod
from duly.web.serving.guarding import CONNECTION

log = logging.getLogger(__name__)

ACCEPT_BATCH = PROBE_RESERVE
"""Connections accepted before the loop yields to other tasks. Beyond the limit a batch replaces
only connections of the batch before, whose requests could be read, and none of its own."""
FULL_PAUSE_S = 0.01
"""Seconds to pause after a batch while the limit is reached, to bound the CPU use of a flood."""
RETRY_S = 1.0
"""Seconds to wait after a failed accept, for example without a free descriptor."""
SWEEP_S = 1.0
"""Seconds between two checks for slow clients."""


class LimitedServer(uvicorn.Server):
    """A server that accepts connections up to a limit and handles no signals."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, connections: Connections
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._listener.settimeout(0)  # the loop waits for it
        self._connections = connections
        self._failures = LogPeriod()
        self._beginning: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signal handling to the process that runs the loops."""
        yield

    async def startup(
        self,
        sockets: list[socket.socket] | None = None,  # noqa: ARG002 - main_loop() has it
    ) -> None:
        """Start the application; main_loop() accepts."""
        await super().startup(sockets=[])

    async def main_loop(self) -> None:
        """Accept connections and close slow ones until the server stops."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._accept()), group.create_task(self._sweep())]
            await super().main_loop()
            for each in tasks:
                each.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                client, _ = await loop.sock_accept(self._listener)
            except ConnectionAbortedError:
                continue  # the client disconnected while it waited
            except OSError as error:
                if self._listener.fileno() < 0:
                    raise
                self._tell_failure(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._admit(client)
            accepted += 1
            if accepted % ACCEPT_BATCH == 0:
                await asyncio.sleep(FULL_PAUSE_S if self._connections.is_full else 0)

    def _admit(self, client: socket.socket) -> None:
        connection = self._connections.admit(self._parser)
        if connection is None:
            client.close()
            return
        task = asyncio.create_task(self._begin(connection, client))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: Connection, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, client)
        except OSError:  # the client has disconnected
            self._connections.forget(connection)
            client.close()

    def _parser(self, connection: Connection) -> asyncio.Protocol:
        """Return uvicorn's protocol, whose requests name the connection in their state."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state={**self.lifespan.state, CONNECTION: connection},
        )

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            self._connections.close_late(loop.time())

    def _tell_failure(self, error: OSError) -> None:
        times = self._failures.count(asyncio.get_running_loop().time())
        if times:
            log.error(
                "cannot accept HTTP connections: %s (%d times); retrying every second; if the "
                "process is out of descriptors, raise ulimit -n or lower DULY_MAX_CONNECTIONS",
                error,
                times,
                extra={"event": "http.accept_failed"},
            )


class OncePerPeriod(logging.Filter):
    """Log filter that passes each warning once a minute, so that no client can fill the log."""

    def __init__(self) -> None:
        super().__init__()
        self._periods: dict[str, LogPeriod] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged; errors always are."""
        if record.levelno != logging.WARNING:
            return True
        period = self._periods.setdefault(str(record.msg), LogPeriod())
        return bool(period.count(record.created))
