"""Serving: an application's HTTP surface and its dashboard, on this loop, beside the other loops.

Takes an application and who may come in; runs like a planner or a worker: run() until stop(). The
address is bound when it is made, so that a port that is taken is said before anything starts.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from duly.errors import InvalidInput
from duly.server.app import Application, Surface
from duly.server.dashboard import dashboard_app
from duly.server.health import Probes
from duly.server.metrics import Metrics
from duly.server.operator_auth import AuthOptions, OperatorAuth
from duly.server.operators import Operator
from duly.server.pages import Glass
from duly.settings import Settings


class Served(Application, Glass, Protocol):
    """What is served: both of them look at it."""


DRAIN_S = 5
"""How long open requests may take when the server stops."""
GUEST = Operator("operator", "operator")
"""Who comes by the link that is printed at the start."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8787
    is_development: bool = False
    """Let everybody on this machine in without a sign-in."""


class Listening:
    """An ASGI application on an address of its own."""

    def __init__(self, asgi: ASGIApp, address: Address, settings: Settings) -> None:
        self._socket = _bound(address)
        config = uvicorn.Config(
            asgi,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=DRAIN_S,
            server_header=False,
            forwarded_allow_ips=list(settings.trusted_proxies),
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}"

    async def run(self) -> None:
        """Answer until stopped."""
        await self._server.serve(sockets=[self._socket])

    def close(self) -> None:
        """Let go of the address; after run() it is gone already."""
        self._socket.close()

    def stop(self) -> None:
        """End after what is being answered."""
        self._server.should_exit = True


def probing(app: Glass, address: Address, settings: Settings | None = None) -> Listening:
    """Probes and metrics alone, for a process that is asked for nothing else."""
    settings = Settings.from_environment() if settings is None else settings
    auth = OperatorAuth(AuthOptions.from_settings(settings, ""))
    routes = [*Probes(app).routes, *Metrics(app, auth).routes]
    return Listening(Starlette(routes=routes), address, settings)


class Serving(Listening):
    """The server of one process: API and dashboard."""

    def __init__(self, app: Served, address: Address, settings: Settings | None = None) -> None:
        settings = Settings.from_environment() if settings is None else settings
        development_host = address.host if address.is_development else ""
        self.auth = OperatorAuth(AuthOptions.from_settings(settings, development_host))
        self._dashboard = dashboard_app(app, self.auth)
        super().__init__(Surface(app, other=self._dashboard), address, settings)

    def sign_in_url(self) -> str | None:
        """A link that signs in once; None: nobody needs to, or the operators have passwords."""
        if self.auth.is_open or self.auth.options.operators:
            return None
        return f"{self.url}/sign-in/link?token={quote(self.auth.make_link_token(GUEST))}"

    def stop(self) -> None:
        """End the streams, then the server after what is being answered."""
        self._dashboard.state.live.close()
        super().stop()


class _Server(uvicorn.Server):
    """Leaves the signals to whoever runs the loops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address.host, address.port))
        found.listen()  # whoever reads the address may come at once, and waits until it answers
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise InvalidInput(
                f"port {address.port} of {address.host} is taken; choose another with --port, or "
                "leave the pages to the process that has it with --roles planner,worker,keeper"
            ) from None
        raise InvalidInput(f"cannot listen on {address.host}:{address.port}: {error}") from None
    return found
