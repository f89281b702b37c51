"""A simulated node: the production planner, worker and keeper over an unreliable store.

A dead node never reaches the store again: writes that its loops still attempt during shutdown are
refused, as from a process that no longer exists.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from duly.errors import BackendUnavailable
from duly.flows.flow import Action
from duly.runtime import Keeper, KeeperOptions, Planner, PlannerOptions, Worker, WorkerOptions
from duly.stores.port import Capabilities, Store, Wake
from duly.testing.simulation.faults import Faults
from duly.testing.simulation.loop import HOST, VirtualClock, VirtualLoop
from duly.testing.simulation.record import Record, WatchedStore

_BACK_SHARE = 0.3
"""Share of answers with a return latency, so that others may overtake them; more is only slower."""


@dataclass(slots=True)
class Surroundings:
    """State that all nodes share."""

    loop: VirtualLoop
    clock: VirtualClock
    """The clock of the store, which is authoritative."""
    store: WatchedStore
    record: Record
    chance: random.Random
    faults: Faults


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of the loops of a node."""

    planner: PlannerOptions
    worker: WorkerOptions
    keeper: KeeperOptions


class Mortal(Protocol):
    """A caller of store verbs that may die or be cut off from the store."""

    name: str
    is_dead: bool
    cut_until_s: float

    def die(self, why: str) -> None:
        """Stop at once, at any point."""


class NodeStore:
    """The store seen by one node: with latency, refusals, lost answers and network cuts."""

    def __init__(self, around: Surroundings, node: Mortal) -> None:
        self._around = around
        self._node = node
        self._base: Any = around.store

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the store; hints may still be lost."""
        return self._around.store.capabilities

    def listen(self, wake: Wake) -> Callable[[], None]:
        """Subscribe to hints, which may be lost, late or doubled; return the unsubscriber."""
        around = self._around

        def hear(hint: str) -> None:
            if around.chance.random() < around.faults.hints_lost:
                around.record.faults["hints lost"] += 1
                return
            times = 1
            if around.chance.random() < around.faults.hints_doubled:
                around.record.faults["hints doubled"] += 1
                times = 2
            for _ in range(times):
                around.loop.call_later(self._way_s(), self._tell, wake, hint)

        return around.store.listen(hear)

    def _tell(self, wake: Wake, hint: str) -> None:
        if not self._node.is_dead:
            wake(hint)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        verb = getattr(self._base, name)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            return await self._ask(name, verb, args, kwargs)

        self.__dict__[name] = ask  # cache, so that __getattr__ runs once per verb
        return ask

    async def _ask(
        self,
        name: str,
        verb: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        node, around, faults = self._node, self._around, self._around.faults
        roll = around.chance.random
        await self._go()
        if roll() < faults.refused:
            raise self._unavailable("refused", name)
        if roll() < faults.killed / 2:
            node.die(f"before {name}")
            raise self._unavailable("gone", name)
        try:
            answer = await verb(*args, **kwargs)
        finally:
            around.record.look(around.clock.now_ms(), node.name, name, args)
        if roll() < faults.killed / 2:
            node.die(f"after {name}")
        if roll() < faults.lost:
            raise self._unavailable("answer lost", name)
        await self._go(share=_BACK_SHARE)
        return answer

    async def _go(self, *, share: float = 1.0) -> None:
        """Wait for one way to the store or back; `share`: probability that it has a latency."""
        around, node = self._around, self._node
        if around.chance.random() < share:
            await asyncio.sleep(self._way_s())
        if (rest_s := node.cut_until_s - around.loop.time()) > 0:
            await asyncio.sleep(rest_s)
        if node.is_dead:
            raise BackendUnavailable(f"{node.name} is gone")

    def _way_s(self) -> float:
        around, faults = self._around, self._around.faults
        if around.chance.random() < faults.stalled:
            around.record.faults["stalled"] += 1
            return around.chance.expovariate(1 / faults.stall_s)
        return around.chance.expovariate(1 / faults.delay_s)

    def _unavailable(self, kind: str, name: str) -> BackendUnavailable:
        around = self._around
        around.record.fault(around.clock.now_ms(), self._node.name, kind, name)
        return BackendUnavailable(f"{kind}: {name}", is_unreachable=True)


Actions = Callable[["Node"], Mapping[str, Action]]
"""Returns the actions of a node; they record what they do there."""


class Node:
    """One process of an application, running until it dies or is stopped."""

    def __init__(
        self, name: str, around: Surroundings, options: NodeOptions, actions: Actions
    ) -> None:
        self.name = name
        self.is_dead = False
        self.is_leaving = False
        """True after stop(): the node takes no more work."""
        self.cut_until_s = 0.0
        self.around = around
        store = cast(Store, NodeStore(around, self))
        skew_s = around.chance.uniform(-around.faults.skew_s, around.faults.skew_s)
        own_clock = VirtualClock(around.clock.now(), around.loop, skew_s - around.loop.time())
        self._loops: tuple[Planner | Worker | Keeper, ...] = (
            Planner(store, options.planner),
            Worker(store, actions(self), options.worker, clock=own_clock, notifies=True),
            Keeper(store, options.keeper),
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the loops."""
        context = contextvars.copy_context()
        context.run(HOST.set, self.name)
        self._tasks = [
            asyncio.create_task(each.run(), name=self.name, context=context) for each in self._loops
        ]
        for task in self._tasks:
            task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Record the error of a failed loop and let its whole process die."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.is_dead:
            self.around.record.errors.append((self.name, f"{type(error).__name__}: {error}"))
            self.die(f"by {type(error).__name__}")

    def die(self, why: str) -> None:
        """Stop at once, at any point."""
        if not self.is_dead:
            self.is_dead = True
            self.around.record.fault(self.around.clock.now_ms(), self.name, "killed", why)
            for task in self._tasks:
                task.cancel()

    def freeze(self, seconds: float) -> None:
        """Suspend the process for `seconds`, as if it got no CPU time."""
        self.around.record.fault(
            self.around.clock.now_ms(), self.name, "frozen", f"for {seconds:.1f} s"
        )
        self.around.loop.freeze(self.name, seconds)

    def stop(self) -> None:
        """Stop after running work has ended."""
        self.is_leaving = True
        for each in self._loops:
            each.stop()

    async def ended(self) -> None:
        """Wait until all its loops have ended."""
        await asyncio.wait(self._tasks)
