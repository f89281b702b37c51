"""The HTTP client of a tick: keep-alive, one timeout per post, and no exceptions."""

from __future__ import annotations

import asyncio
from typing import Protocol

import aiohttp
from yarl import URL

from duly.dispatch.tick.options import TickOptions
from duly.dispatch.tick.posting import MAX_ANSWER_BYTES, Post, Reply


class Sender(Protocol):
    """A sender of posts."""

    async def send(self, post: Post) -> Reply:
        """Send a post and return the reply; status 0: there was none."""

    async def close(self) -> None:
        """Close the connections."""


class HttpClient:
    """A sender whose connections stay open between posts and ticks."""

    def __init__(self, options: TickOptions) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, post: Post) -> Reply:
        """Send a post and return the reply; status 0: there was none."""
        try:
            async with self._opened().post(
                # Already encoded: otherwise the client would encode some characters differently.
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
        """Close the connections; closing twice is allowed."""
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
                # Cookies of one application must not be sent to another.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session
