"""A real server for tests: uvicorn on a free port, called over a socket with verbatim paths."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import uvicorn

from duly.app import Duly
from duly.model.jobs import Job
from duly.model.stored_jobs import JobFilter
from duly.testing import ManualClock

T = TypeVar("T")
SECRET = "a-secret-of-the-scheduler"  # noqa: S105 - of a throwaway server
BEARER = {"authorization": f"Bearer {SECRET}"}
NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Reply:
    """A response: status, decoded body, headers."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def error(self) -> str | None:
        """Return the error code of the body, if it has one."""
        return self.body.get("error") if isinstance(self.body, dict) else None


class Server(uvicorn.Server):
    """A server that sets an event once it accepts requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start and set the event."""
        await super().startup(sockets)
        self.answers.set()


@dataclass(frozen=True)
class Site:
    """A served application, its port and its clock."""

    app: Duly
    port: int
    clock: ManualClock

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self.port}"

    def set_http(self, **options: Any) -> None:
        """Change HTTP options of the application after its address is known."""
        self.app.config = replace(self.app.config, http=replace(self.app.http, **options))

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = BEARER,
    ) -> Reply:
        """Send one request; bytes are sent unchanged, anything else as JSON."""
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, sent, dict(headers))
            response = connection.getresponse()
            text = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, json.loads(text) if text else None, found)
        finally:
            connection.close()

    def dispatch(
        self,
        schedule_id: str,
        body: object = None,
        headers: Mapping[str, str] = BEARER,
        flow: str = "mail",
    ) -> Reply:
        """Request one dispatch; `schedule_id` is put into the path unchanged."""
        path = f"/api/flows/{flow}/schedules/{schedule_id}/dispatch"
        return self.ask("POST", path, body, headers)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result."""
        return asyncio.run(coroutine)

    def jobs(self) -> list[Job]:
        """Return all jobs, oldest first."""
        return self.run(self.app.store.list_jobs(JobFilter(), limit=1_000))[::-1]


@contextmanager
def served(app: Any, **options: Any) -> Iterator[int]:
    """Serve an ASGI application on a free port until the end of the block."""
    config = uvicorn.Config(
        app, log_level="critical", ws="none", timeout_graceful_shutdown=5, **options
    )
    server = Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        assert server.answers.wait(30)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
