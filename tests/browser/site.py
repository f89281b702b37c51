"""The dashboard over a sample, served by a real server on a free port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from duly.web.dashboard.site import dashboard_app
from duly.web.operators.accounts import Operator, hash_password
from duly.web.operators.auth import AuthOptions, OperatorAuth
from tests.browser.sample import Sample, sample

PASSWORD = "correct horse battery"  # noqa: S105
VIEWER_PASSWORD = "only looking around"  # noqa: S105
METRICS_TOKEN = "scrape-scrape-scrape"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Site:
    """Where it is, and what is behind it."""

    url: str
    sample: Sample
    auth: OperatorAuth


def operators() -> tuple[Operator, ...]:
    """One who may step in and one who may look."""
    return (
        Operator("ada", "operator", hash_password(PASSWORD)),
        Operator("vic", "viewer", hash_password(VIEWER_PASSWORD)),
    )


def listening() -> socket.socket:
    """A free port. The protocol is named, or asyncio would let the system delay small packets."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.bind(("127.0.0.1", 0))
    made.listen()
    return made


@contextmanager
def serving(mount: str = "", days: int = 10) -> Iterator[Site]:
    """A server in a thread, ended with its streams."""
    made = sample(days=days)
    auth = OperatorAuth(AuthOptions(operators(), metrics_token=METRICS_TOKEN))
    dashboard = dashboard_app(made.app, auth)
    app = Starlette(routes=[Mount(mount, dashboard)]) if mount else dashboard
    listener = listening()
    config = uvicorn.Config(app, log_level="error", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    port = listener.getsockname()[1]
    try:
        yield Site(f"http://127.0.0.1:{port}{mount}", made, auth)
    finally:
        dashboard.state.live.close()
        server.should_exit = True
        thread.join()
