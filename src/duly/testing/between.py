"""Run whole transactions between the reads and the commit of another, on one thread.

Real threads interleave at these points only rarely; here a seeded random source picks the points,
and the same seed reproduces the same interleaving. The invariants are checked after each commit.
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
"""Nesting depth: transactions that are suspended at the same time."""
MAX_BETWEEN = 6
"""Transactions interleaved into one use case; bounded so that the use case terminates."""


class BetweenStore(OptimisticStore):
    """An optimistic store that interleaves transactions and checks invariants after each commit."""

    def __init__(
        self,
        clock: Clock | None = None,
        planning: PlanSettings | None = None,
        faults: PortFaults = NO_FAULTS,
        seed: int = 0,
    ) -> None:
        super().__init__(clock, planning, faults, seed)
        self.other: Callable[[], object] | None = None
        """The use case to interleave. None: nothing is interleaved."""
        self.share = 0.2
        """Probability of interleaving at each possible point."""
        self.let_run: Collection[str] = ()
        self.limits: Mapping[str, int] = {}
        """`let_run` and `limits`: arguments of check_state()."""
        self.between = 0
        """Transactions interleaved so far."""
        self._depth = 0
        self._left = MAX_BETWEEN
        self._failure: Exception | None = None
        self._before_commit: list[Callable[[], object]] = []
        self._last: Items | None = None

    def meet(self, outer: Callable[[], T], inner: Callable[[], object]) -> T:
        """Run `inner` just before the first commit of `outer`; return the result of `outer`."""
        self._before_commit.append(inner)
        answer = outer()
        assert not self._before_commit, "the outer use case never reached its commit"
        return answer

    def pause(self, *, is_commit: bool = False) -> None:
        """Run the use case given to meet(), or at random `other`."""
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
            # Kept for step(); raised here, it would fail the suspended use case.
            self._failure = self._failure or error
        finally:
            self._depth -= 1
            self._left = left

    def step(self, act: Callable[[], object]) -> None:
        """Run an outermost use case; raise the first error of an interleaved one."""
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
    """Return the result of a memory-store verb, without an event loop: these verbs never await."""
    try:
        verb.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    verb.close()
    raise AssertionError("a memory-store verb suspended; it must complete without awaiting")
