"""Fixtures that serve applications to the tests of the HTTP API."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from duly.app import Duly
from duly.dispatch import Gateway, HttpOptions
from duly.flows.flow import Flow
from duly.testing import ManualClock
from tests.integration.http.site import NOW, SECRET, Site, served

Serve = Callable[..., Site]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that serves flows on a memory store with a manual clock."""
    with ExitStack() as stack:

        def start(*flows: Flow, url: str = "memory:", authorize: Any = None, **http: Any) -> Site:
            clock = ManualClock(NOW)
            options = HttpOptions(**{"gateways": [Gateway(SECRET)], **http})
            app = Duly(url, flows=flows, clock=clock, http=options, authorize=authorize)
            return Site(app, stack.enter_context(served(app.asgi)), clock)

        yield start
