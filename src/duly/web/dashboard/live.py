"""Pages that change while one looks on: parts of them, sent as server-sent events.

A stream reads its page again and again and sends what differs. How many streams there are is
bounded; one ends with its session, with the browser's connection, or with the server.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from duly.errors import DulyError

log = logging.getLogger(__name__)

MAX_STREAMS = 64
PERIOD_S = 2.0
HEARTBEAT_S = 15.0
RETRY_MS = 3_000
_TIME = re.compile(r"(<time [^>]*>)[^<]*")

Read = Callable[[], Awaitable[dict[str, str] | None]]
"""The parts of a page by the ids of their places; None: the stream is to end."""


class Live:
    """The streams of one server."""

    def __init__(self, *, period_s: float = PERIOD_S, most: int = MAX_STREAMS) -> None:
        self._period_s = period_s
        self._most = most
        self._streams = 0
        self._closing = asyncio.Event()

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._streams

    def close(self) -> None:
        """End all streams; a server calls it before it waits for its connections."""
        self._closing.set()

    def answer(self, read: Read) -> Response:
        """A stream of what changes; refused where there are many already."""
        if self._streams >= self._most or self._closing.is_set():
            return PlainTextResponse("too many pages are being followed\n", 503)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = self._stream(read)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _stream(self, read: Read) -> AsyncIterator[bytes]:
        if self._streams >= self._most:
            # Others began between the answer and its first byte.
            yield event("end", {})
            return
        self._streams += 1
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            sent: dict[str, str] = {}
            quiet_s = 0.0
            while not self._closing.is_set():
                try:
                    found = await read()
                except DulyError as error:
                    log.warning("live: %s", error, extra={"event": "dashboard.unavailable"})
                    found = {}
                if found is None:
                    break
                changed = changes(sent, found)
                quiet_s = 0.0 if changed else quiet_s + self._period_s
                if changed:
                    yield event("parts", changed)
                elif quiet_s >= HEARTBEAT_S:
                    quiet_s = 0.0
                    yield b": still here\n\n"
                await self._pause()
            yield event("end", {})
        finally:
            self._streams -= 1

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._period_s):
                await self._closing.wait()
        except TimeoutError:
            return


def changes(sent: dict[str, str], found: dict[str, str]) -> dict[str, str]:
    """Parts that differ from those sent before, which are remembered.

    Distances of times grow by themselves in the browser, so they make no difference.
    """
    changed = {}
    for name, html in found.items():
        mark = _TIME.sub(r"\1", html)
        if sent.get(name) != mark:
            sent[name] = mark
            changed[name] = html
    return changed


def event(kind: str, parts: dict[str, str]) -> bytes:
    """One server-sent event; JSON has no line breaks of its own."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(parts))
