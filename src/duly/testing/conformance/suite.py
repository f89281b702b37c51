"""The base of all conformance suites: one store, manual clock and event loop per test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from duly.clock import Clock
from duly.stores.port import Store
from duly.testing.clock import ManualClock

P = ParamSpec("P")
Suite = TypeVar("Suite", bound="StoreConformance")

OpenStore = Callable[[Clock | None], Store]

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
"""Start time of every test: a Monday at noon."""


class StoreConformance:
    """Base class of the suites."""

    runner: asyncio.Runner

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Return a function that opens a new, empty store; override it."""
        raise NotImplementedError("the suite's subclass must define an `open_store` fixture")

    @pytest.fixture
    def clock(self) -> ManualClock:
        """Return the clock of `store`."""
        return ManualClock(START)

    @pytest.fixture(autouse=True)
    def event_loop_runner(self) -> Iterator[asyncio.Runner]:
        """Yield the event loop of the test, also used to open and close its store."""
        with asyncio.Runner() as self.runner:
            yield self.runner

    @pytest.fixture
    def store(
        self, open_store: OpenStore, clock: ManualClock, event_loop_runner: asyncio.Runner
    ) -> Iterator[Store]:
        """Yield a new, empty store on the manual clock."""
        store = open_store(clock)
        yield store
        # An application's own index may have no close().
        if hasattr(store, "close"):
            event_loop_runner.run(store.close())


def case(
    test: Callable[Concatenate[Suite, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Suite, P], None]:
    """Return a coroutine function as a test method that runs on the loop of its store."""

    @wraps(test)
    def run(self: Suite, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.runner.run(test(self, *args, **kwargs))

    return run
