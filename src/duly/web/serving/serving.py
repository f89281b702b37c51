"""HTTP servers of a process: API and dashboard, or probes alone.

A server runs like a planner or a worker: run() until stop(). The address is bound by the
constructor, so that a port in use is reported before anything starts.
"""

from __future__ import annotations

import errno
import logging
import socket
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from duly.errors import InvalidInput
from duly.settings import Settings
from duly.web.api.asgi import Application, Surface
from duly.web.dashboard.live import MAX_STREAMS
from duly.web.dashboard.pages.page import MonitoredApp
from duly.web.dashboard.site import dashboard_app
from duly.web.metrics import Metrics
from duly.web.operators.accounts import Operator
from duly.web.operators.auth import AuthOptions, OperatorAuth
from duly.web.probes import Probes
from duly.web.serving.accepting import LimitedServer, OncePerPeriod
from duly.web.serving.ambiguity import RefuseAmbiguous
from duly.web.serving.connections import ConnectionLimits, Connections
from duly.web.serving.descriptors import connection_limit, descriptor_limit
from duly.web.serving.guarding import Guard


class Served(Application, MonitoredApp, Protocol):
    """An application as needed by API and dashboard together."""


DRAIN_S = 5
"""Seconds that open requests may take when the server stops."""
BACKLOG = 1_024
"""Connections queued by the system until they are accepted; they use no descriptors."""
MAX_HEADER_BYTES = 65_536
PROBE_CONNECTIONS = 16
"""Connection limit of a process that answers only probes and metrics."""
STREAM_SHARE = 4
"""Live pages may use one in this many connections."""
GUEST = Operator("operator", "operator")
"""Operator of the sign-in link that is printed at startup."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address to listen on; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8787
    is_development: bool = False
    """Development mode: no sign-in is needed on this machine."""


class Listening:
    """A server of one ASGI application on one address."""

    def __init__(
        self, asgi: ASGIApp, address: Address, settings: Settings, most_connections: int
    ) -> None:
        self._socket = _bound(address)
        self.connections = Connections(ConnectionLimits.of(settings, most_connections))
        config = uvicorn.Config(
            Guard(asgi, self.connections),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=DRAIN_S,
            timeout_keep_alive=settings.idle_timeout_s,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            ws="none",
            server_header=False,
            forwarded_allow_ips=list(settings.trusted_proxies),
        )
        self._server = LimitedServer(config, self._socket, self.connections)

    @property
    def url(self) -> str:
        """Base URL of the server."""
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}"

    async def run(self) -> None:
        """Serve until stopped."""
        parsers = logging.getLogger("uvicorn.error")
        quiet = OncePerPeriod()
        parsers.addFilter(quiet)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            parsers.removeFilter(quiet)

    def close(self) -> None:
        """Release the address; after run() it is already released."""
        self._socket.close()

    def stop(self) -> None:
        """Stop after the requests in progress."""
        self._server.should_exit = True


def probing(app: Served, address: Address, settings: Settings | None = None) -> Listening:
    """Return a server of probes and metrics only."""
    settings = app.settings if settings is None else settings
    auth = OperatorAuth(AuthOptions.from_settings(settings, ""))
    routes = [*Probes(app).routes, *Metrics(app, auth).routes]
    asgi = RefuseAmbiguous(Starlette(routes=routes))
    return Listening(asgi, address, settings, PROBE_CONNECTIONS)


class Serving(Listening):
    """The server of one process: API and dashboard."""

    def __init__(self, app: Served, address: Address, settings: Settings | None = None) -> None:
        settings = app.settings if settings is None else settings
        development_host = address.host if address.is_development else ""
        self.auth = OperatorAuth(AuthOptions.from_settings(settings, development_host))
        connections = connection_limit(settings, descriptor_limit())
        streams = max(1, min(MAX_STREAMS, connections // STREAM_SHARE))
        self._dashboard = dashboard_app(app, self.auth, most_streams=streams)
        super().__init__(Surface(app, other=self._dashboard), address, settings, connections)

    def sign_in_url(self) -> str | None:
        """Return a one-time sign-in link; None: development mode, or operators have passwords."""
        if self.auth.is_open or self.auth.options.operators:
            return None
        return f"{self.url}/sign-in/link?token={quote(self.auth.make_link_token(GUEST))}"

    def stop(self) -> None:
        """Close the live streams and stop after the requests in progress."""
        self._dashboard.state.live.close()
        super().stop()


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address.host, address.port))
        # A client may connect as soon as the address is known; it waits in the backlog.
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise InvalidInput(
                f"port {address.port} of {address.host} is in use; choose another with --port, or "
                "run without the pages (--roles planner,worker,keeper)"
            ) from None
        raise InvalidInput(f"cannot listen on {address.host}:{address.port}: {error}") from None
    return found
