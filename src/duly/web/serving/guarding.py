"""ASGI middleware that applies the limits of a request's connection.

Requests beyond the connection limit are answered 503, except probes. A body that takes too long is
answered 408. Both close the connection.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly.dispatch.contract import Answer
from duly.web.api import problems
from duly.web.serving.connections import Connection, Connections

CONNECTION = "duly.connection"
"""Key of the connection in the request state."""
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are answered even beyond the limit."""
RETRY_AFTER_S = 1


class Guard:
    """Middleware that passes on requests of connections within the limit."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection = scope.get("state", {}).pop(CONNECTION, None)
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return
        exchange = Exchange(connection, receive, send, self._connections.limits.body_s)
        with connection.request():
            exchange.is_last = not self._connections.is_within_limit(connection)
            if exchange.is_last and scope["path"] not in PROBES:
                await exchange.answer(_too_many())
                return
            try:
                await self._app(scope, exchange.receive, exchange.send)
            except ClientDisconnect:
                return  # no client waits for an answer, and it is not an application error


class Exchange:
    """A request and its answer, with a deadline for the body."""

    def __init__(self, connection: Connection, receive: Receive, send: Send, body_s: float) -> None:
        self._connection = connection
        self._receive = receive
        self._send = send
        self._due_at_s = asyncio.get_running_loop().time() + body_s
        self._is_read = False
        self._is_begun = False
        self._is_over = False
        self.is_last = False
        """True: the connection is closed after the answer."""

    async def receive(self) -> Message:
        """Return the next message; after the deadline answer 408 and report a disconnect."""
        if self._is_read:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._due_at_s):
                message = await self._receive()
        except TimeoutError:
            return await self._give_up()
        self._is_read = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def send(self, message: Message) -> None:
        """Pass the answer on, unless the client was already answered 408."""
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            self._is_begun = True
            if self.is_last:
                MutableHeaders(scope=message)["connection"] = "close"
        await self._send(message)

    async def answer(self, answer: Answer) -> None:
        """Answer instead of the application, and close the connection."""
        self.is_last = True
        headers = {"cache-control": "no-store", **answer.headers}
        response = JSONResponse(answer.body, answer.status, headers)
        await response({"type": "http"}, self._receive, self.send)
        self._is_over = True

    async def _give_up(self) -> Message:
        self._is_read = True
        if self._is_begun:
            self._connection.abort()
            return await self._receive()  # until the parser notices the closed connection
        await self.answer(_too_slow())
        return {"type": "http.disconnect"}


def _too_many() -> Answer:
    return problems.problem(
        503,
        "too_many_connections",
        "this process has reached its connection limit; try again",
        retry_after=str(RETRY_AFTER_S),
    )


def _too_slow() -> Answer:
    return problems.problem(
        408, "request_timeout", "the body did not arrive in time (DULY_BODY_TIMEOUT_S)"
    )
