"""A tick as an AWS Lambda function, called by an EventBridge schedule or over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from duly.dispatch.auth.secrets import Gatekeeper
from duly.dispatch.contract import Answer, system_refusal
from duly.dispatch.options import HttpOptions, gateways_of
from duly.dispatch.tick.answers import tick_answer
from duly.dispatch.tick.tick import Tick
from duly.settings import Settings


class Ticking(Protocol):
    """The part of an application that a tick needs."""

    @property
    def http(self) -> HttpOptions:
        """Its HTTP options."""

    @property
    def settings(self) -> Settings:
        """Settings of the process."""

    @property
    def ticker(self) -> Callable[[], Awaitable[Tick]]:
        """A function that returns its tick."""

    async def close(self) -> None:
        """Close the database connections."""


class LambdaTick:
    """A Lambda function: `handler = LambdaTick(app)`.

    An event with headers came over HTTP and must carry a system secret; any other was authorised by
    AWS.
    """

    def __init__(self, app: Ticking) -> None:
        self._app = app
        self._gatekeeper = Gatekeeper(gateways_of(app.http, app.settings))
        # One loop for the life of the container, so that connections stay open between events.
        self._runner = asyncio.Runner()

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        """Run one tick and return its answer as an HTTP event."""
        del context
        headers = _headers(event)
        if headers is not None:
            refused = system_refusal(self._gatekeeper.admit_bearer(headers))
            if refused is not None:
                return _as_event(refused)
        return _as_event(self._runner.run(tick_answer(self._app.ticker)))

    def close(self) -> None:
        """Close the application; AWS itself never calls this."""
        with self._runner:
            self._runner.run(self._app.close())


def _headers(event: Any) -> dict[str, str] | None:
    if not isinstance(event, Mapping) or not {"headers", "requestContext"} & event.keys():
        return None
    found = event.get("headers") or {}
    return {str(name).lower(): str(text) for name, text in found.items()}


def _as_event(answer: Answer) -> dict[str, Any]:
    body = "" if answer.body is None else msgspec.json.encode(answer.body).decode()
    headers = {"content-type": "application/json"}
    return {"statusCode": answer.status, "headers": headers, "body": body}
