"""The ASGI application: dispatch, tick, webhooks and the API for end users.

Checks run in the order of the contract: path and method, size, authentication, then the request
itself. Paths are read below the mount, as sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Protocol

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from duly.clock import Clock
from duly.dispatch.auth.secrets import CLOSED, Gatekeeper
from duly.dispatch.contract import Answer, DispatchRequest, Refusal, system_refusal
from duly.dispatch.declared import list_static
from duly.dispatch.dispatcher import Authorize, Dispatcher
from duly.dispatch.options import HttpOptions, gateways_of
from duly.dispatch.resolver import call as asked
from duly.dispatch.tick.answers import tick_answer
from duly.dispatch.tick.tick import Tick
from duly.dispatch.webhooks import DeliveryRequest, deliver
from duly.errors import DulyError
from duly.flows.flow import Flow
from duly.model.principals import Principal
from duly.operate.redaction.raised import traceback_of
from duly.settings import Settings
from duly.stores.port import Store
from duly.web.api import problems
from duly.web.api.bodies import TooLarge, read_limited
from duly.web.api.endpoints import UserApi, UserCall
from duly.web.api.openapi import document
from duly.web.api.operations import OPERATIONS, Operation
from duly.web.api.routing import Match, Paths, raw_path
from duly.web.serving.ambiguity import RefuseAmbiguous, UniqueHeaders

log = logging.getLogger(__name__)

NOBODY = (
    "authenticate returned a principal with neither user nor workspace, which is the system; such "
    "requests are answered 401; return None for an unknown caller"
)
Endpoint = Callable[["Call"], Awaitable[Answer]]


class Application(Protocol):
    """Parts of an application that the surface needs."""

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Flows of the application."""

    @property
    def http(self) -> HttpOptions:
        """Options of the HTTP surface."""

    @property
    def settings(self) -> Settings:
        """Settings of the process."""

    @property
    def authorize(self) -> Authorize | None:
        """Callback that is asked before anything is started; None: everything is allowed."""

    @property
    def clock(self) -> Clock:
        """Clock of the application."""

    async def ready(self) -> Store:
        """Open the store if needed and return it."""

    async def ticker(self) -> Tick:
        """Return the tick that posts due occurrences."""

    async def close_ticker(self) -> None:
        """Close the connections of the tick."""


class Call:
    """A matched request with its body."""

    def __init__(self, operation: Operation, match: Match, request: Request, body: bytes) -> None:
        self.operation = operation
        self.params = match.params
        self.request = request
        self.headers = UniqueHeaders(request.headers.raw)
        """Headers by lower-case name; reading one that was sent twice is refused."""
        self.body = body


class Surface:
    """The ASGI application; `other` answers paths outside /api, such as the dashboard."""

    def __init__(self, app: Application, *, other: ASGIApp | None = None) -> None:
        self._app = app
        self._other = other
        self._paths = Paths(dict.fromkeys(each.path for each in OPERATIONS))
        self._operations = {(each.path, each.method): each for each in OPERATIONS}
        self._unambiguous = RefuseAmbiguous(self._route)
        # Built now, so that an invalid or missing secret is reported at startup.
        self.gatekeeper = _gatekeeper(app.http, app.settings)
        self._has_warned_system = False
        self._endpoints: dict[str, Endpoint] = {
            "openapi": self._openapi,
            "dispatch": self._dispatch,
            "listStatic": self._list_static,
            "tick": self._tick,
            "tickByGet": self._tick,
            "webhook": self._webhook,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        await self._unambiguous(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            path = raw_path(scope)
            if self._other is not None and not path.startswith("/api/"):
                await self._other(scope, receive, send)
                return
            answer = await self._answer(path, Request(scope, receive))
            if answer is not None:
                await _response(answer)(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._app.close_ticker()
                await send({"type": "lifespan.shutdown.complete"})
                return

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._flows,
            self._app.http,
            self.gatekeeper,
            authorize=self._app.authorize,
            clock=self._app.clock,
        )

    @cached_property
    def _flows(self) -> dict[str, Flow]:
        return {flow.name: flow for flow in self._app.flows}

    @cached_property
    def _api(self) -> UserApi:
        return UserApi(self._app.http)

    async def _answer(self, path: str, request: Request) -> Answer | None:
        """Return the answer; None: the client has disconnected."""
        match = self._paths.match(path)
        if match is None:
            return await self._unknown(request)
        operation = self._operations.get((match.path, request.method))
        if operation is None:
            allowed = [method for known, method in self._operations if known == match.path]
            return problems.problem(405, "method_not_allowed", allow=", ".join(allowed))
        try:
            body = await read_limited(request, self._limit(operation))
            return await self._called(Call(operation, match, request, body))
        except TooLarge:
            return problems.problem(413, "body_too_large")
        except ClientDisconnect:
            return None
        except Refusal as refused:
            return refused.answer
        except DulyError as error:
            return problems.of_error(error)
        except Exception as error:  # noqa: BLE001 - a bug, or the application's own
            told = traceback_of(error)
            log.error("%s failed: %s", operation.id, told, extra={"event": "http.failed"})
            return problems.problem(500, "failed")

    def _limit(self, operation: Operation) -> int:
        limits = self._app.http.limits
        by_security = {"gateway": limits.dispatch, "signature": limits.webhook}
        return by_security.get(operation.security, limits.api)

    async def _called(self, call: Call) -> Answer:
        endpoint = self._endpoints.get(call.operation.id)
        return await self._for_user(call) if endpoint is None else await endpoint(call)

    async def _unknown(self, request: Request) -> Answer:
        """Answer an unknown path: 401 to unknown callers, so that paths cannot be probed."""
        if self.gatekeeper.admit_bearer(UniqueHeaders(request.headers.raw)) is None:
            try:
                if await self._user(request) is None:
                    return problems.unauthorized()
            except Exception as error:  # noqa: BLE001 - the application's own
                about = {"event": "http.authenticate_failed"}
                log.error("authenticate raised: %s", traceback_of(error), extra=about)
                return problems.unauthorized()
        return problems.problem(404, "not_found")

    async def _user(self, request: Request) -> Principal | None:
        authenticate = self._app.http.authenticate
        found = None if authenticate is None else await asked(authenticate, request)
        if found is None or not found.is_system:
            return found
        # Most likely an anonymous session, which must not act as the system.
        if not self._has_warned_system:
            self._has_warned_system = True
            log.warning(NOBODY, extra={"event": "http.authenticate_system"})
        return None

    async def _openapi(self, call: Call) -> Answer:
        return Answer(200, document() | {"servers": [{"url": _root(call.request)}]})

    async def _dispatch(self, call: Call) -> Answer:
        request = DispatchRequest(
            call.params["flow"], call.params["scheduleId"], call.headers, call.body
        )
        return await self._dispatcher.answer(self._app.ready, request)

    async def _list_static(self, call: Call) -> Answer:
        self._check_system(call)
        flow = self._flows.get(call.params["flow"])
        if flow is None:
            return problems.problem(404, "flow_not_found")
        return Answer(200, await list_static(await self._app.ready(), flow))

    async def _tick(self, call: Call) -> Answer:
        self._check_system(call)
        return await tick_answer(self._app.ticker)

    async def _webhook(self, call: Call) -> Answer:
        flow = self._flows.get(call.params["flow"])
        webhook = None if flow is None else flow.webhooks.get(call.params["webhook"])
        if flow is None or webhook is None:
            return problems.unauthorized()
        request = DeliveryRequest(flow, webhook, call.headers, call.body)
        return await deliver(self._app.ready, request, self._app.clock)

    async def _for_user(self, call: Call) -> Answer:
        principal = await self._user(call.request)
        if principal is None:
            return problems.unauthorized()
        flow = self._flows.get(call.params["flow"])
        if flow is None:
            return problems.problem(404, "flow_not_found")
        store = await self._app.ready()
        query = dict(call.request.query_params)
        user_call = UserCall(store, flow, principal, call.params, query, call.body)
        return await self._api.operations[call.operation.id](user_call)

    def _check_system(self, call: Call) -> None:
        """Refuse callers whose secret does not cover all owners."""
        refused = system_refusal(self.gatekeeper.admit_bearer(call.headers))
        if refused is not None:
            raise Refusal(refused)


def _gatekeeper(options: HttpOptions, settings: Settings) -> Gatekeeper:
    gateways = gateways_of(options, settings)
    if not gateways:
        log.warning(CLOSED, extra={"event": "dispatch.closed"})
    return Gatekeeper(gateways)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/") or "/"


def _response(answer: Answer) -> Response:
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", **answer.headers}
    if answer.body is None:
        return Response(status_code=answer.status, headers=headers)
    content = msgspec.json.encode(answer.body)
    return Response(content, answer.status, headers, media_type="application/json")
