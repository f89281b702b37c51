"""An event loop whose time is a number.

When nothing is ready it jumps to the next timer, so a month passes as fast as its events can be
worked off. With a source of chance it also permutes what is ready: asyncio promises no order that
a correct program may rely on. The same chance gives the same order.

Whatever runs with the same `HOST` in its context belongs to one simulated process, which can be
frozen as a stopped or starved process is: nothing of it runs, and its timers ring when it is back.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar

from duly.triggers.instants import to_ms

T = TypeVar("T")
HOST: ContextVar[str | None] = ContextVar("HOST", default=None)
"""The simulated process that a task or a callback belongs to."""
_ROUNDING_S = 1e-6


class NothingLeft(RuntimeError):
    """Everybody waits, and no timer will ever wake anybody."""


class VirtualClock:
    """A clock that is as far on as the loop; `skew_s` is how wrong a host's own clock is."""

    def __init__(self, start: datetime, loop: VirtualLoop, skew_s: float = 0.0) -> None:
        self._start = start + timedelta(seconds=skew_s)
        self._loop = loop

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        return self._start + timedelta(seconds=self._loop.time())

    def now_ms(self) -> int:
        """The same in milliseconds since 1970."""
        return to_ms(self.now())


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio without a selector: timers only, no sockets, functions for threads run at once."""

    def __init__(self, chance: random.Random | None = None) -> None:
        super().__init__()
        # BaseEventLoop leaves these to the class that knows about files and sockets.
        self._selector = _Jump(self)
        self._process_events = self._permute
        self._chance = chance
        self.now_s = 0.0
        self.on_jump: Callable[[float], None] | None = None
        """Told the new time whenever it moved."""
        self._frozen_until: dict[str, float] = {}
        self._held: list[asyncio.Handle] = []
        """What frozen processes would run."""

    def time(self) -> float:
        """Seconds since the loop began."""
        return self.now_s

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
        if self.on_jump is not None:
            self.on_jump(self.now_s)

    def freeze(self, host: str, seconds: float) -> None:
        """Let nothing of a process run for so long."""
        until = max(self.now_s + seconds, self._frozen_until.get(host, 0.0))
        self._frozen_until[host] = until
        timers: Any = self._scheduled  # type: ignore[attr-defined]  # of BaseEventLoop
        for timer in timers:
            if _owner_of(timer) == host:
                timer._when = max(timer._when, until)  # noqa: SLF001 - asyncio moves no timer
        heapq.heapify(timers)
        self.call_at(until, self._thaw_due)

    def thaw(self) -> None:
        """Let every frozen process go on now; timers that were put off stay so."""
        self._frozen_until.clear()
        self._thaw_due()

    def _thaw_due(self) -> None:
        # A jump to a timer may end a rounding error before it.
        soon_s = self.now_s + _ROUNDING_S
        frozen = self._frozen_until.items()
        self._frozen_until = {host: until for host, until in frozen if until > soon_s}
        held, self._held = self._held, []
        self._ready.extend(held)  # type: ignore[attr-defined]  # of BaseEventLoop

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end, and leave nothing behind."""
        asyncio.set_event_loop(None)
        try:
            return self.run_until_complete(main)
        finally:
            self._end_tasks()
            self.run_until_complete(self.shutdown_asyncgens())
            self.close()

    def run_in_executor(  # type: ignore[override]  # typeshed hides that it may be any future
        self, _executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run it here and now: a thread would bring back chance, and time stands still anyway."""
        answer: asyncio.Future[T] = self.create_future()
        try:
            answer.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            answer.set_exception(error)
        return answer

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks, timeout=60.0))

    def _permute(self, _events: list[object]) -> None:
        """Called before each round of what is ready."""
        ready: Any = self._ready  # type: ignore[attr-defined]  # of BaseEventLoop
        if self._frozen_until:
            self._hold_frozen(ready)
        if self._chance is not None and len(ready) > 1:
            self._chance.shuffle(ready)

    def _hold_frozen(self, ready: Any) -> None:
        """Set aside what belongs to frozen processes."""
        callbacks = list(ready)
        ready.clear()
        for each in callbacks:
            is_frozen = _owner_of(each) in self._frozen_until
            (self._held if is_frozen else ready).append(each)

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody needs to be woken."""


def _owner_of(callback: Any) -> str | None:
    """Return the simulated process that a callback belongs to."""
    context: Context = callback._context  # noqa: SLF001 - asyncio tells it in no other way
    return context.get(HOST)


class _Jump:
    """Stands where a selector would: waiting for so long is letting so much time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise NothingLeft("everybody waits for somebody, and nobody for a time")
        if timeout > 0:
            self._loop.jump(timeout)
        return []
