"""A TCP proxy in front of a server: its target can be swapped, its connections frozen.

A frozen connection stays open and carries nothing any more, in neither direction: the kernel still
acknowledges what is sent, as behind a middlebox that has lost its state. Closing one end of it is
not passed on either.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536


class Proxy:
    """Forwards connections, on a thread of its own, until the end of a `with` block."""

    def __init__(self, port: int) -> None:
        self.port = 0
        """Where it listens."""
        self._target = port
        self._is_silent = False
        self._frozen = asyncio.Event()
        """Of the connections that are open; freezing sets it, and new ones get another."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, url: str) -> str:
        """Return the URL of the same database through the proxy."""
        head, _, rest = url.partition(f":{self._target}/")
        assert rest, f"{url} is not on port {self._target}"
        return f"{head}:{self.port}/{rest}"

    def point_to(self, port: int) -> None:
        """Forward connections that come from now on to another server."""
        self._target = port

    def freeze(self) -> None:
        """Let the connections that are open carry nothing any more; new ones work."""
        self._run(self._freeze())

    def fall_silent(self) -> None:
        """Freeze all, and accept new connections without ever answering them."""
        self._is_silent = True
        self.freeze()

    def answer(self) -> None:
        """Forward new connections again; those accepted in silence stay frozen."""
        self._is_silent = False

    def close_connections(self) -> None:
        """Close the connections that are open, frozen ones too."""
        self._run(self._close_connections())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _freeze(self) -> None:
        self._frozen.set()
        self._frozen = asyncio.Event()

    async def _close(self) -> None:
        self._server.close()
        await self._close_connections()

    async def _close_connections(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Closing the proxy cancels this; asyncio would log a cancelled handler as an error.
        with contextlib.closing(answer), contextlib.suppress(OSError, asyncio.CancelledError):
            if self._is_silent:
                await asyncio.Event().wait()
            server, request = await asyncio.open_connection(HOST, self._target)
            with contextlib.closing(request):
                await self._forward(client, request, server, answer)

    async def _forward(
        self,
        client: asyncio.StreamReader,
        request: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        answer: asyncio.StreamWriter,
    ) -> None:
        """Carry both directions until one of them ends."""
        frozen = self._frozen
        there = asyncio.create_task(_pump(client, request, frozen))
        back = asyncio.create_task(_pump(server, answer, frozen))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (there, back):
                each.cancel()
            await asyncio.gather(there, back, return_exceptions=True)


async def _pump(
    come: asyncio.StreamReader, go: asyncio.StreamWriter, frozen: asyncio.Event
) -> None:
    with contextlib.suppress(OSError):
        while data := await come.read(CHUNK_BYTES):
            if frozen.is_set():
                break
            go.write(data)
            await go.drain()
    if frozen.is_set():
        await asyncio.Event().wait()
