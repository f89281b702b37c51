"""Serves the dashboard of the sample application on a free local port."""

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
    """A served dashboard: its URL, its data and its authentication."""

    url: str
    sample: Sample
    auth: OperatorAuth


def operators() -> tuple[Operator, ...]:
    """Return one operator and one viewer."""
    return (
        Operator("ada", "operator", hash_password(PASSWORD)),
        Operator("vic", "viewer", hash_password(VIEWER_PASSWORD)),
    )


def listening() -> socket.socket:
    """Listen on a free port, with an explicit protocol so that asyncio sets TCP_NODELAY."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.bind(("127.0.0.1", 0))
    made.listen()
    return made


@contextmanager
def serving(mount: str = "", days: int = 10) -> Iterator[Site]:
    """Serve on a thread; close the live streams and stop at the end of the block."""
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
