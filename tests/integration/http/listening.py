"""Runs a listener of Duly on a thread, and clients on raw sockets that can be arbitrarily slow."""

import asyncio
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from starlette.types import Receive, Scope, Send

from duly.web.serving.serving import Listening

LIMIT_S = 30.0
DRIP_S = 0.02
ASKED = "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: {}\r\n\r\n"


class Held:
    """An ASGI application that holds its answers until the test releases them."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.bodies: list[bytes] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._released = asyncio.Event()

    def release(self) -> None:
        """Release all held answers and hold no more."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._released.set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._loop = asyncio.get_running_loop()
        self.begun.release()
        try:
            await self._answer(scope, receive, send)
        finally:
            self.ended.release()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 2
        match scope["path"]:
            case "/held" | "/healthz":
                await self._released.wait()
            case "/read":
                self.bodies.append(await _body(receive))
            case "/large":
                size = 50_000_000
            case _:
                pass
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, size, 100_000):
            part = b"o" * min(100_000, size - start)
            more = start + len(part) < size
            await send({"type": "http.response.body", "body": part, "more_body": more})


async def _body(receive: Receive) -> bytes:
    whole = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"gone"
        whole += message["body"]
        if not message["more_body"]:
            return bytes(whole)


class Client:
    """One client connection."""

    def __init__(self, port: int, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(("127.0.0.1", port))

    def close(self) -> None:
        self.socket.close()

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def ask(self, path: str, connection: str = "close") -> tuple[int, dict[str, str], bytes]:
        """Send a request and return status, headers and body."""
        self.send(ASKED.format(path, connection))
        return self.answer()

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read one response."""
        read = b""
        while b"\r\n\r\n" not in read:
            read += self._part()
        head, _, body = read.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        headers = {name.lower(): value for name, _, value in pairs}
        while len(body) < int(headers["content-length"]):
            body += self._part()
        return int(first.split()[1]), headers, body

    def until(self, expected: bytes) -> bytes:
        """Read until `expected` has arrived, in any number of packets; return everything read."""
        read = b""
        while expected not in read:
            read += self._part()
        return read

    def _part(self) -> bytes:
        part = self.socket.recv(65_536)
        assert part, "closed before the answer was complete"
        return part

    def until_closed(self) -> bytes:
        """Read until the server closes the connection; return what was read."""
        read = b""
        try:
            while part := self.socket.recv(65_536):
                read += part
        except ConnectionResetError:
            return read
        return read

    def drip(self, text: str) -> bytes:
        """Send one byte at a time, slowly, until the server answers or closes the connection."""
        for number in range(int(LIMIT_S / DRIP_S)):
            ready, _, _ = select.select([self.socket], [], [], DRIP_S)
            if ready:
                return self.until_closed()
            try:
                self.socket.send(text[number % len(text)].encode())
            except (BrokenPipeError, ConnectionResetError):
                return b""
        raise AssertionError("the server neither answered a slow client nor closed its connection")


Connect = Callable[..., Client]


@contextmanager
def running(listening: Listening, http: str = "auto") -> Iterator[Connect]:
    """Run a listener on a thread; yield a function that connects clients, closed at the end."""
    listening._server.config.http = http
    port = int(listening.url.rpartition(":")[2])
    thread = threading.Thread(target=asyncio.run, args=(listening.run(),), daemon=True)
    thread.start()
    with ExitStack() as stack:

        def connect(**options: int) -> Client:
            return stack.enter_context(closing(Client(port, **options)))

        try:
            yield connect
        finally:
            listening.stop()
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def error_of(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, Any]:
    """Return status and error of a refusal, which must announce that the connection is closed."""
    status, headers, body = answer
    assert headers["connection"] == "close"
    return status, json.loads(body)["error"]
