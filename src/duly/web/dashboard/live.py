"""Live updates of open pages by server-sent events.

A stream reads its page periodically and sends the parts that changed. The number of streams is
bounded; a stream ends with its session, its connection or the server.
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
"""Returns the live parts of a page by element id; None: end the stream."""


class Live:
    """Live streams of one server."""

    def __init__(self, *, period_s: float = PERIOD_S, most: int = MAX_STREAMS) -> None:
        self._period_s = period_s
        self._most = most
        self._streams = 0
        self._closing = asyncio.Event()

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return self._streams

    def close(self) -> None:
        """End all streams; a server calls this before it waits for its connections."""
        self._closing.set()

    def answer(self, read: Read) -> Response:
        """Return a stream of changes, or 503 if the limit of streams is reached."""
        if self._streams >= self._most or self._closing.is_set():
            return PlainTextResponse("too many live pages are open\n", 503)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = self._stream(read)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _stream(self, read: Read) -> AsyncIterator[bytes]:
        if self._streams >= self._most:
            # Other streams may have started since the check in answer().
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
    """Return the parts that differ from those in `sent`, and update `sent`.

    Relative times are ignored: the browser updates them itself.
    """
    changed = {}
    for name, html in found.items():
        mark = _TIME.sub(r"\1", html)
        if sent.get(name) != mark:
            sent[name] = mark
            changed[name] = html
    return changed


def event(kind: str, parts: dict[str, str]) -> bytes:
    """Return one server-sent event; its JSON contains no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(parts))
