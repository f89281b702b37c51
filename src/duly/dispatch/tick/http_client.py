"""The HTTP client of a tick: keep-alive, one time limit for each post, and never an exception."""

from __future__ import annotations

import asyncio
from typing import Protocol

import aiohttp
from yarl import URL

from duly.dispatch.tick.options import TickOptions
from duly.dispatch.tick.posting import MAX_ANSWER_BYTES, Post, Reply


class Sender(Protocol):
    """Sends posts."""

    async def send(self, post: Post) -> Reply:
        """The reply; status 0 where there was none."""

    async def close(self) -> None:
        """Let go of connections."""


class HttpClient:
    """Posts over connections that stay open between posts, and between ticks."""

    def __init__(self, options: TickOptions) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, post: Post) -> Reply:
        """The reply; status 0 where there was none."""
        try:
            async with self._opened().post(
                # As it stands: by itself the client would write some characters in another way.
                URL(post.url, encoded=True),
                data=post.body,
                headers=post.headers,
                allow_redirects=False,
            ) as response:
                body = await response.content.read(MAX_ANSWER_BYTES)
                again = response.headers.get("retry-after", "")
                return Reply(response.status, body, again)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return Reply(0, failure=f"{type(error).__name__} {error}".strip())

    async def close(self) -> None:
        """Let go of connections; closing twice is fine."""
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._options.timeout_s),
                connector=aiohttp.TCPConnector(limit=self._options.concurrency),
                # Nothing that one application answers is sent to another.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session
