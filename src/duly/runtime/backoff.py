"""Waiting: until a signal or a time, and a little longer after each failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from duly.errors import BackendUnavailable, Conflict, InternalError
from duly.model.claims import Claims

STORE_FAILURES = (BackendUnavailable, Conflict, InternalError)
"""Errors of a store that a loop logs and survives.

Only the first is expected to pass; after the others the loop still has other work to do.
"""

_SOONEST_MS = 20
"""Jobs that come due within so short a time are claimed together, not one by one."""


class Signal:
    """Something that may have happened; waiting for it takes it back."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Say that it happened; any number of times before somebody looks is once."""
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it, or for so long; True: it happened."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


@dataclass(slots=True)
class Backoff:
    """A pause that doubles with every failure and starts anew with success."""

    first_s: float = 0.1
    longest_s: float = 5.0
    _next_s: float = 0.0

    def next(self) -> float:
        """How long to wait this time."""
        self._next_s = min(max(self._next_s * 2, self.first_s), self.longest_s)
        return self._next_s

    def reset(self) -> None:
        """Something worked."""
        self._next_s = 0.0


def pause_after(claims: Claims, idle_polls: Backoff) -> float:
    """Return how many seconds to wait after a claim that took nothing."""
    pause_s = idle_polls.next()
    if claims.wake_at_ms is None:
        return pause_s
    # A millisecond more, so that the database's clock has passed the time for certain.
    return min(pause_s, max(claims.wake_at_ms - claims.now_ms + 1, _SOONEST_MS) / 1000)


async def end_tasks(tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
    """Cancel tasks and wait a little: a handler that swallows its cancelling is left behind."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=seconds)


def in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[str], None]) -> Callable[[str], None]:
    """Call it on the loop, from whatever thread; after the loop has ended, not at all."""

    def hand_over(hint: str) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call, hint)

    return hand_over
