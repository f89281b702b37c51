"""Whole transactions between the reads and the commit of another one, on one thread.

Threads meet at such places now and then; here they meet at every place that chance picks, and the
same seed gives the same story. After each commit the invariants are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from duly.clock import Clock
from duly.engine.kinds import KINDS
from duly.model.plans import PlanSettings
from duly.stores.memory.source import KEEPING
from duly.stores.memory.tables import Tables
from duly.testing.invariants import Items, check_state, check_step
from duly.testing.optimistic import NO_FAULTS, OptimisticStore, PortFaults

T = TypeVar("T")

MAX_DEPTH = 2
"""Transactions that wait for others at the same time."""
MAX_BETWEEN = 6
"""Others that run between while one use case is at work, so that it comes to an end."""


class BetweenStore(OptimisticStore):
    """An optimistic store that lets others run in between, and is checked after each commit."""

    def __init__(
        self,
        clock: Clock | None = None,
        planning: PlanSettings | None = None,
        faults: PortFaults = NO_FAULTS,
        seed: int = 0,
    ) -> None:
        super().__init__(clock, planning, faults, seed)
        self.other: Callable[[], object] | None = None
        """What may run between; None: nothing does."""
        self.share = 0.2
        """How often something runs at a place where something may."""
        self.let_run: Collection[str] = ()
        self.limits: Mapping[str, int] = {}
        """Both as check_state() takes them."""
        self.between = 0
        """How many ran in between so far."""
        self._depth = 0
        self._left = MAX_BETWEEN
        self._failure: Exception | None = None
        self._before_commit: list[Callable[[], object]] = []
        self._last: Items | None = None

    def meet(self, outer: Callable[[], T], inner: Callable[[], object]) -> T:
        """Return what `outer` does while `inner` runs before its first commit."""
        self._before_commit.append(inner)
        answer = outer()
        assert not self._before_commit, "the outer use case did not come to its commit"
        return answer

    def pause(self, *, is_commit: bool = False) -> None:
        """Let others run: whom meet() names, or sometimes another one."""
        if is_commit and self._before_commit:
            self._before_commit.pop()()
        may_run = self.other is not None and self._depth < MAX_DEPTH and self._left > 0
        if not may_run or not self.happens(self.share):
            return
        assert self.other is not None
        self._left -= 1
        self.between += 1
        self._depth += 1
        left, self._left = self._left, MAX_BETWEEN
        try:
            self.other()
        except Exception as error:  # noqa: BLE001
            # Not the failure of the use case that waits, which may be run again.
            self._failure = self._failure or error
        finally:
            self._depth -= 1
            self._left = left

    def step(self, act: Callable[[], object]) -> None:
        """Do something while nothing else is under way; raise what failed in between."""
        self._left = MAX_BETWEEN
        act()
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Tables, int]]:
        with super()._transaction() as (tables, now_ms):
            before = items_of(tables) if self._last is None else self._last
            yield tables, now_ms
            after = items_of(tables)
            check_step(before, after, now_ms)
            check_state(after, tables.job_events, let_run=self.let_run, limits=self.limits)
            self._last = after
            self.unported += after != before


def items_of(tables: Tables) -> Items:
    """Return all items of a memory store."""
    return {
        kind: {
            key: item
            for key in KEEPING[kind].keys(tables)
            if (item := KEEPING[kind].read(tables, key)) is not None
        }
        for kind in KINDS
    }


def run(verb: Coroutine[Any, Any, T]) -> T:
    """Return what a verb of the memory store answers; it never waits, so it needs no loop."""
    try:
        verb.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    verb.close()
    raise AssertionError("a verb of the memory store waits for something")
