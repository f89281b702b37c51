"""The async API for code that is not async: one event loop on a thread of its own.

No method is written twice: a call that returns an awaitable is run on that loop while the caller
blocks.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from duly.errors import InvalidInput
from duly.flows.forks import watch_forks

T = TypeVar("T")


class Portal:
    """A loop on a thread, started by the first call, or a loop that already runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._lock = threading.Lock()
        self._loop = loop
        if loop is None:
            watch_forks(self)

    def detach_from_parent(self) -> None:
        """Start a new loop with the next call, since a fork does not copy the thread."""
        self._lock, self._loop = threading.Lock(), None

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; refused in async code."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None:
            coroutine.close()
            raise InvalidInput("sync blocks, and this is async code: await the call itself")
        return asyncio.run_coroutine_threadsafe(coroutine, self._started()).result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="duly-sync", daemon=True
                ).start()
            return self._loop


class Sync:
    """A wrapper of an object whose async methods block until they have a result."""

    def __init__(self, of: object, portal: Portal) -> None:
        self._of = of
        self._portal = portal

    def __repr__(self) -> str:
        return f"<sync {self._of!r}>"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if callable(found):
            return self._waiting(found)
        return Sync(found, self._portal) if _is_ours(found) else found

    def _waiting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*args: Any, **kwargs: Any) -> Any:
            answer = call(*args, **kwargs)
            if inspect.iscoroutine(answer):
                return self._portal.call(answer)
            return Sync(answer, self._portal) if _is_ours(answer) else answer

        return wait


def _is_ours(value: object) -> bool:
    """Return whether an object has async methods to wrap; values have none."""
    kind = type(value)
    return kind.__module__.startswith("duly.") and any(
        inspect.iscoroutinefunction(member) for member in vars(kind).values()
    )
