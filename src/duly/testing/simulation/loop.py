"""An event loop on virtual time.

When nothing is ready it jumps to the next timer. With a random source it also shuffles the ready
callbacks, since a correct program must not rely on their order; the same seed gives the same order.

Callbacks with the same `HOST` in their context belong to one simulated process. A process can be
frozen, as if stopped or starved: none of its callbacks run, and its timers fire when it resumes.
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
"""The simulated process of a task or callback. None: it belongs to no process."""
_ROUNDING_S = 1e-6


class NothingLeft(RuntimeError):
    """A deadlock: all tasks wait and no timer is pending."""


class VirtualClock:
    """A clock that follows the virtual loop, plus the clock error `skew_s` of a host."""

    def __init__(self, start: datetime, loop: VirtualLoop, skew_s: float = 0.0) -> None:
        self._start = start + timedelta(seconds=skew_s)
        self._loop = loop

    def now(self) -> datetime:
        """Return the current instant, aware."""
        return self._start + timedelta(seconds=self._loop.time())

    def now_ms(self) -> int:
        """Return the current instant in milliseconds since 1970."""
        return to_ms(self.now())


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop with timers only: no sockets, and executor functions run inline."""

    def __init__(self, chance: random.Random | None = None) -> None:
        super().__init__()
        # BaseEventLoop expects its subclass to provide these.
        self._selector = _Jump(self)
        self._process_events = self._permute
        self._chance = chance
        self.now_s = 0.0
        self.on_jump: Callable[[float], None] | None = None
        """Called with the new virtual time, in seconds, after each jump."""
        self._frozen_until: dict[str, float] = {}
        self._held: list[asyncio.Handle] = []
        """Ready callbacks of frozen processes."""

    def time(self) -> float:
        """Return the seconds since the loop was created."""
        return self.now_s

    def jump(self, seconds: float) -> None:
        """Advance virtual time."""
        self.now_s += seconds
        if self.on_jump is not None:
            self.on_jump(self.now_s)

    def freeze(self, host: str, seconds: float) -> None:
        """Suspend all callbacks and timers of a process for `seconds`."""
        until = max(self.now_s + seconds, self._frozen_until.get(host, 0.0))
        self._frozen_until[host] = until
        timers: Any = self._scheduled  # type: ignore[attr-defined]  # of BaseEventLoop
        for timer in timers:
            if _owner_of(timer) == host:
                timer._when = max(timer._when, until)  # noqa: SLF001 - asyncio moves no timer
        heapq.heapify(timers)
        self.call_at(until, self._thaw_due)

    def thaw(self) -> None:
        """Resume every frozen process now; its postponed timers keep their new times."""
        self._frozen_until.clear()
        self._thaw_due()

    def _thaw_due(self) -> None:
        # Rounding may end a jump slightly before its timer.
        soon_s = self.now_s + _ROUNDING_S
        frozen = self._frozen_until.items()
        self._frozen_until = {host: until for host, until in frozen if until > soon_s}
        held, self._held = self._held, []
        self._ready.extend(held)  # type: ignore[attr-defined]  # of BaseEventLoop

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, cancel its leftover tasks, close the loop, and return its result."""
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
        """Run the function inline: threads would not be deterministic."""
        answer: asyncio.Future[T] = self.create_future()
        try:
            answer.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised where the future is awaited
            answer.set_exception(error)
        return answer

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks, timeout=60.0))

    def _permute(self, _events: list[object]) -> None:
        """Hold frozen callbacks and shuffle the ready ones; called before each loop iteration."""
        ready: Any = self._ready  # type: ignore[attr-defined]  # of BaseEventLoop
        if self._frozen_until:
            self._hold_frozen(ready)
        if self._chance is not None and len(ready) > 1:
            self._chance.shuffle(ready)

    def _hold_frozen(self, ready: Any) -> None:
        """Set aside ready callbacks of frozen processes."""
        callbacks = list(ready)
        ready.clear()
        for each in callbacks:
            is_frozen = _owner_of(each) in self._frozen_until
            (self._held if is_frozen else ready).append(each)

    def _write_to_self(self) -> None:
        """Do nothing: the loop never blocks, so it needs no wake-up."""


def _owner_of(callback: Any) -> str | None:
    """Return the simulated process that a callback belongs to."""
    context: Context = callback._context  # noqa: SLF001 - asyncio has no public API for it
    return context.get(HOST)


class _Jump:
    """A selector replacement that advances virtual time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise NothingLeft("deadlock: all tasks wait and no timer is pending")
        if timeout > 0:
            self._loop.jump(timeout)
        return []
