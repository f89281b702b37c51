"""What all suites share: a store per test, a clock that stands still, one event loop."""

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
"""When every test begins: a Monday at noon."""


class StoreConformance:
    """Base of the suites."""

    runner: asyncio.Runner

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """To be given by the subclass: a function that opens the test's own, empty store."""
        raise NotImplementedError("the subclass gives an `open_store` fixture")

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The clock of `store`."""
        return ManualClock(START)

    @pytest.fixture(autouse=True)
    def event_loop_runner(self) -> Iterator[asyncio.Runner]:
        """One loop for a whole test, its store's opening and closing included."""
        with asyncio.Runner() as self.runner:
            yield self.runner

    @pytest.fixture
    def store(
        self, open_store: OpenStore, clock: ManualClock, event_loop_runner: asyncio.Runner
    ) -> Iterator[Store]:
        """A new, empty store on the manual clock."""
        store = open_store(clock)
        yield store
        # An index of an application's own has no close() to call.
        if hasattr(store, "close"):
            event_loop_runner.run(store.close())


def case(
    test: Callable[Concatenate[Suite, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Suite, P], None]:
    """A coroutine as a test method, run on the loop of its store."""

    @wraps(test)
    def run(self: Suite, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.runner.run(test(self, *args, **kwargs))

    return run
