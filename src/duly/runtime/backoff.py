"""Waiting for a signal or a time, exponential backoff, and cancelling tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from duly.errors import BackendUnavailable, Conflict, InternalError
from duly.model.claims import Claims

STORE_FAILURES = (BackendUnavailable, Conflict, InternalError)
"""Store errors that a loop logs and survives.

Only BackendUnavailable is expected to pass; after the others the loop still has other work to do.
"""

_SOONEST_MS = 20
"""Shortest pause in ms: jobs that come due within it are claimed together, not one by one."""


class Signal:
    """An event that a successful wait clears."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Set the event; several calls before the next wait count once."""
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the event, at most `timeout_s`; return whether it was set."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


@dataclass(slots=True)
class Backoff:
    """A pause that doubles with every failure and is reset by success."""

    first_s: float = 0.1
    longest_s: float = 5.0
    _next_s: float = 0.0

    def next(self) -> float:
        """Return how many seconds to wait this time."""
        self._next_s = min(max(self._next_s * 2, self.first_s), self.longest_s)
        return self._next_s

    def reset(self) -> None:
        """Start again from the first pause, after a success."""
        self._next_s = 0.0


def pause_after(claims: Claims, idle_polls: Backoff) -> float:
    """Return how many seconds to wait after a claim that took nothing."""
    pause_s = idle_polls.next()
    if claims.wake_at_ms is None:
        return pause_s
    # One millisecond more, so that the database's clock has certainly passed the time.
    return min(pause_s, max(claims.wake_at_ms - claims.now_ms + 1, _SOONEST_MS) / 1000)


async def end_tasks(tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
    """Cancel tasks and wait up to `seconds`; a handler that ignores cancellation keeps running."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=seconds)


def in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that runs `call` on the loop from any thread; a no-op on a closed loop."""

    def hand_over(hint: str) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call, hint)

    return hand_over
