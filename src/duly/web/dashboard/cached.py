"""Answers kept for a while, so that many who ask cost no more than one.

A shared one is read while they wait. A kept one is read behind them: nobody waits for longer than
they say, and meanwhile they get the answer before, or None where there is none yet.
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
"""An answer is kept for at least this many times as long as it took to read."""


class Kept(Generic[T]):
    """One answer."""

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
        """The last attempt to read failed; the answer is that of an earlier one."""

    @property
    def age_s(self) -> float | None:
        """How old the answer is; None: there is none yet."""
        if self._read_at is None:
            return None
        return asyncio.get_running_loop().time() - self._read_at

    async def get(self, wait_s: float = FIRST_S) -> T | None:
        """The answer, new or a little old; None where it takes longer than `wait_s`."""
        age_s = self.age_s
        if age_s is not None and age_s < self._good_for_s:
            return self._answer
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_anew())
        await asyncio.wait({self._reading}, timeout=wait_s)
        return self._answer

    async def glimpse(self) -> T | None:
        """The answer there is, at once, while a newer one is read behind; waits for a first one."""
        return await self.get(0 if self._read_at is not None else FIRST_S)

    async def _read_anew(self) -> None:
        clock = asyncio.get_running_loop()
        begun = clock.time()
        try:
            self._answer = await self._read()
            self.has_failed = False
            self._read_at = clock.time()
            # What is dear to read is read less often: never more than a small share of the time.
            if self._for_s:
                self._good_for_s = max(self._for_s, self._rest_factor * (self._read_at - begun))
        except DulyError as error:
            self.has_failed = True
            log.warning("dashboard: %s", error, extra={"event": "dashboard.unavailable"})


class Shared(Generic[T]):
    """One answer, never older than it may be; whoever asks hears of what failed."""

    def __init__(self, read: Callable[[], Awaitable[T]], for_s: float) -> None:
        self._read = read
        self._for_s = for_s
        self._reading: asyncio.Future[T] | None = None
        self._asked_at = 0.0

    async def get(self) -> T:
        """The answer; one that others wait for, or got just now."""
        now = asyncio.get_running_loop().time()
        if self._reading is None or self._is_old(now):
            self._reading, self._asked_at = asyncio.ensure_future(self._read()), now
            self._reading.add_done_callback(_hear)
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(self._reading)

    def forget(self) -> None:
        """Read anew for the next one: something has changed."""
        self._reading = None

    def _is_old(self, now: float) -> bool:
        reading = self._reading
        if reading is None or not reading.done():
            return False
        failed = reading.cancelled() or reading.exception() is not None
        return failed or now - self._asked_at >= self._for_s


def _hear(reading: asyncio.Future[Any]) -> None:
    """A failure that nobody waited for is no news."""
    if not reading.cancelled():
        reading.exception()
