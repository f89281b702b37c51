"""Waiting: until a signal or a time, and a little longer after each failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from duly.errors import BackendUnavailable, Conflict, InternalError

STORE_FAILURES = (BackendUnavailable, Conflict, InternalError)
"""Errors of a store that a loop logs and survives.

Only the first is expected to pass; after the others the loop still has other work to do.
"""


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


def in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[str], None]) -> Callable[[str], None]:
    """Call it on the loop, from whatever thread; after the loop has ended, not at all."""

    def hand_over(hint: str) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call, hint)

    return hand_over
