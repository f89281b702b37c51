"""Caches of expensive reads, so that many callers cost no more than one.

Callers of `Shared` wait for the read. `Kept` reads in the background: a caller waits for at most
its own timeout and gets the previous answer meanwhile, or None if there is none yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from duly.errors import DulyError

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_S = 0.2
REST_FACTOR = 30
"""An answer is kept for at least this many times the duration of its read."""


class Kept(Generic[T]):
    """Cached answer, refreshed in the background."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], for_s: float, rest_factor: int = REST_FACTOR
    ) -> None:
        self._read = read
        self._for_s = self._good_for_s = for_s
        self._rest_factor = rest_factor
        self._answer: T | None = None
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self.has_failed = False
        """True: the last read failed, and the answer is from an earlier one."""

    @property
    def age_s(self) -> float | None:
        """Age of the answer in seconds; None: there is none yet."""
        if self._read_at is None:
            return None
        return asyncio.get_running_loop().time() - self._read_at

    async def get(self, wait_s: float = FIRST_S) -> T | None:
        """Return the answer, refreshed if the read takes at most `wait_s`; None: none yet."""
        age_s = self.age_s
        if age_s is not None and age_s < self._good_for_s:
            return self._answer
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_anew())
        await asyncio.wait({self._reading}, timeout=wait_s)
        return self._answer

    async def try_now(self) -> T | None:
        """Return the cached answer at once and refresh it; wait only for a first one."""
        return await self.get(0 if self._read_at is not None else FIRST_S)

    async def _read_anew(self) -> None:
        clock = asyncio.get_running_loop()
        begun = clock.time()
        try:
            self._answer = await self._read()
            self.has_failed = False
            self._read_at = clock.time()
            # Slow reads are kept longer, so that reading takes a small share of the time.
            if self._for_s:
                self._good_for_s = max(self._for_s, self._rest_factor * (self._read_at - begun))
        except DulyError as error:
            self.has_failed = True
            log.warning("dashboard: %s", error, extra={"event": "dashboard.unavailable"})


class Shared(Generic[T]):
    """Cached answer of bounded age; errors are raised to the callers."""

    def __init__(self, read: Callable[[], Awaitable[T]], for_s: float) -> None:
        self._read = read
        self._for_s = for_s
        self._reading: asyncio.Future[T] | None = None
        self._asked_at = 0.0

    async def get(self) -> T:
        """Return the answer, sharing a read in progress or a recent one."""
        now = asyncio.get_running_loop().time()
        if self._reading is None or self._is_old(now):
            self._reading, self._asked_at = asyncio.ensure_future(self._read()), now
            self._reading.add_done_callback(_hear)
        # A cancelled caller must not cancel the read of the others.
        return await asyncio.shield(self._reading)

    def forget(self) -> None:
        """Drop the answer, because something has changed."""
        self._reading = None

    def _is_old(self, now: float) -> bool:
        reading = self._reading
        if reading is None or not reading.done():
            return False
        failed = reading.cancelled() or reading.exception() is not None
        return failed or now - self._asked_at >= self._for_s


def _hear(reading: asyncio.Future[Any]) -> None:
    """Mark the exception as retrieved, so that asyncio does not log it."""
    if not reading.cancelled():
        reading.exception()
