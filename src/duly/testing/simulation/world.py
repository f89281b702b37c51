"""One simulation: create nodes, users and faults from a seed, run them, and return the record.

Everything follows from the seed: the loop's order, latencies, faults, user requests, the behaviour
of handlers, and every id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.clock import Clock
from duly.engine.ids import ids_from
from duly.flows.context import Context
from duly.flows.flow import Action, Flow, actions_of
from duly.model.jobs import FINAL
from duly.model.plans import PlanSettings
from duly.model.schedules import ScheduleId
from duly.runtime import KeeperOptions, PlannerOptions, WorkerOptions
from duly.testing.simulation.faults import NO_FAULTS, Faults
from duly.testing.simulation.loop import VirtualClock, VirtualLoop
from duly.testing.simulation.nodes import Node, NodeOptions, Surroundings
from duly.testing.simulation.people import ACTION, FLOW, People
from duly.testing.simulation.record import Record, Start, WatchedStore
from duly.testing.simulation.workload import Drawing

STARTS = (
    datetime(2026, 3, 29, 0, 57, tzinfo=UTC),  # Berlin: clocks go forward at 01:00 UTC
    datetime(2026, 10, 25, 0, 57, tzinfo=UTC),  # Berlin: clocks go back
    datetime(2026, 3, 8, 6, 57, tzinfo=UTC),  # New York
    datetime(2026, 11, 1, 5, 57, tzinfo=UTC),
    datetime(2026, 4, 4, 14, 57, tzinfo=UTC),  # Lord Howe: a change of half an hour
    datetime(2026, 12, 31, 23, 57, tzinfo=UTC),
)
_SETTLE_S = 5.0
_SETTLE_LOOKS = 400

MakeStore = Callable[[Clock, PlanSettings], WatchedStore]


@dataclass(frozen=True, slots=True)
class Scene:
    """The parameters that a seed determines in advance."""

    start: datetime
    seconds: float
    nodes: int
    faults: Faults
    names: tuple[str, ...]
    pause_s: float
    look_ahead_s: float
    plans_ahead_s: float
    lease_s: float

    @classmethod
    def drawn(cls, chance: random.Random) -> Scene:
        """Draw the parameters of a small application under faults."""
        return cls(
            start=chance.choice(STARTS),
            seconds=chance.uniform(90, 330),
            nodes=chance.choice((1, 2, 2, 3)),
            faults=Faults.drawn(chance),
            names=("s-one", "u-two", "s-three", "u-four", "s-five")[: chance.randint(2, 5)],
            pause_s=chance.choice((8.0, 30.0, 200.0)),
            look_ahead_s=chance.choice((0.0, 5.0, 60.0)),
            plans_ahead_s=chance.choice((0.0, 60.0)),
            lease_s=chance.choice((4.0, 10.0, 30.0)),
        )


def make_watched(clock: Clock, planning: PlanSettings) -> WatchedStore:
    """Return the store that simulations run on by default."""
    return WatchedStore(clock, planning=planning)


@dataclass(slots=True)
class Ran:
    """A finished simulation."""

    seed: int
    scene: Scene
    record: Record


def run(seed: int, make_store: MakeStore = make_watched) -> Ran:
    """Run the simulation of a seed until nothing is left to do, and return its record."""
    chance = random.Random(seed)  # noqa: S311 - must be reproducible
    scene = Scene.drawn(chance)
    loop = VirtualLoop(chance)
    clock = VirtualClock(scene.start, loop)
    store = make_store(clock, PlanSettings(look_ahead_ms=int(scene.plans_ahead_s * 1_000)))
    around = Surroundings(loop, clock, store, Record(store), chance, scene.faults)
    with _only_this_chance(chance, clock), _quiet_logs():
        loop.run(_World(scene, around).play())
    around.record.end_ms = clock.now_ms()
    return Ran(seed, scene, around.record)


@contextmanager
def _only_this_chance(chance: random.Random, clock: Clock) -> Iterator[None]:
    """Derive ids and the global `random` module from the seed."""
    state = random.getstate()
    random.seed(chance.random())
    try:
        with ids_from(clock, chance.randbytes):
            yield
    finally:
        random.setstate(state)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Silence the logs of `duly`: the faults are intended, and recorded in the trace."""
    logger = logging.getLogger("duly")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


class _World:
    def __init__(self, scene: Scene, around: Surroundings) -> None:
        self._scene = scene
        self._around = around
        self._nodes: list[Node] = []
        self._made = 0

    async def play(self) -> None:
        scene, around = self._scene, self._around
        for _ in range(scene.nodes):
            self._start_node()
        end = scene.start + timedelta(seconds=scene.seconds)
        draw = Drawing(around.chance, around.clock.now, end)
        people = People(around, draw, scene.names, scene.pause_s)
        troubles = [
            asyncio.create_task(each)
            for each in (people.act(), self._kill(), self._cut(), self._freeze(), self._lose())
        ]
        await asyncio.sleep(scene.seconds)
        await self._stop_faults(troubles)
        await self._settle()
        for node in self._nodes:
            node.stop()
        for node in self._nodes:
            await node.ended()
        around.record.metrics = await _read_metrics(around.store)

    def _start_node(self) -> None:
        self._made += 1
        scene = self._scene
        options = NodeOptions(
            PlannerOptions(look_ahead_s=scene.look_ahead_s),
            WorkerOptions(slots=3, lease_s=scene.lease_s, drain_s=3.0, block_limit_s=0),
            KeeperOptions(),
        )
        node = Node(f"node-{self._made}", self._around, options, _actions)
        self._nodes.append(node)
        node.start()
        self._around.record.note(self._around.clock.now_ms(), node.name, "starts")

    async def _kill(self) -> None:
        """Kill or stop nodes, and start replacements."""
        chance, every_s = self._around.chance, self._scene.faults.death_every_s
        while True:
            await asyncio.sleep(1.0 if every_s is None else chance.expovariate(1 / every_s))
            living = self._living()
            if every_s is not None and living:
                node = chance.choice(living)
                if chance.random() < 0.3:
                    node.stop()
                else:
                    node.die("at some time")
            if len(self._living()) < self._scene.nodes:
                await asyncio.sleep(chance.expovariate(1 / max(self._scene.faults.rest_s, 1.0)))
                self._start_node()

    async def _cut(self) -> None:
        """Cut nodes off from the database for a while."""
        around, every_s = self._around, self._scene.faults.cut_every_s
        while every_s is not None:
            await asyncio.sleep(around.chance.expovariate(1 / every_s))
            if living := self._living():
                node = around.chance.choice(living)
                seconds = around.chance.expovariate(1 / self._scene.faults.cut_s)
                node.cut_until_s = around.loop.time() + seconds
                around.record.fault(around.clock.now_ms(), node.name, "cut", f"for {seconds:.1f} s")

    async def _freeze(self) -> None:
        """Freeze and resume processes, some for longer than their lease."""
        around, faults = self._around, self._scene.faults
        while faults.freeze_every_s is not None:
            await asyncio.sleep(around.chance.expovariate(1 / faults.freeze_every_s))
            if living := self._living():
                leases = around.chance.uniform(0, faults.freeze_leases)
                around.chance.choice(living).freeze(leases * self._scene.lease_s)

    async def _lose(self) -> None:
        """Kill nodes in a row, each when it may have taken over the jobs of the last."""
        around, faults = self._around, self._scene.faults
        while faults.losses_every_s is not None:
            await asyncio.sleep(around.chance.expovariate(1 / faults.losses_every_s))
            for number in range(faults.losses):
                if living := self._living():
                    around.chance.choice(living).die(f"loss {number + 1} in a row")
                self._start_node()
                # The keeper checks for expired leases every few seconds.
                await asyncio.sleep(self._scene.lease_s + around.chance.uniform(0.0, 8.0))

    def _living(self) -> list[Node]:
        return [node for node in self._nodes if not node.is_dead and not node.is_leaving]

    async def _stop_faults(self, troubles: list[asyncio.Task[None]]) -> None:
        """Stop all faults, and make sure that a node is running."""
        for task in troubles:
            task.cancel()
        await asyncio.wait(troubles)
        self._around.faults = NO_FAULTS
        self._around.loop.thaw()
        for node in self._nodes:
            node.cut_until_s = 0.0
        if not self._living():
            self._start_node()

    async def _settle(self) -> None:
        """Wait, for a limited time, until no work is left; the checks report unfinished work."""
        tables = self._around.store
        for _ in range(_SETTLE_LOOKS):
            await asyncio.sleep(_SETTLE_S)
            if not self._living():  # a fault drawn earlier may take effect only now
                self._start_node()
            jobs = (stored.job for stored in tables.tables.jobs.values())
            if not tables.tables.rows and all(job.state in FINAL for job in jobs):
                return


async def _read_metrics(store: WatchedStore) -> dict[tuple[str, str], int]:
    """Return the `duly_occurrences` that a process started now would serve."""
    # Imported here: fast_forward() alone needs no metrics library.
    from duly.web.metrics import of_ledger

    families = of_ledger(await store.count_occurrences())
    (family,) = [each for each in families if each.name == "duly_occurrences"]
    return {
        (sample.labels["flow"], sample.labels["outcome"]): int(sample.value)
        for sample in family.samples
    }


def _actions(node: Node) -> Mapping[str, Action]:
    """Return the single action of the simulated application, bound to a node."""
    flow = Flow(FLOW)
    around = node.around

    @flow.action(name=ACTION)
    async def work(how: dict[str, Any], ctx: Context) -> None:
        if node.is_dead:
            await asyncio.Event().wait()  # a dead node runs nothing; its slot is being cancelled
        stored = around.store.tables.jobs.get(ctx.job_id)
        job = None if stored is None else stored.job
        start = Start(
            around.clock.now_ms(),
            node.name,
            ctx.job_id,
            None if job is None or job.schedule_id is None else ScheduleId(job.schedule_id),
            None if job is None else job.nominal_ms,
            ctx.attempt,
        )
        around.record.begin(start)
        try:
            await _behave(around.chance, how)
        finally:
            around.record.end(start)

    return actions_of([flow])


async def _behave(chance: random.Random, how: dict[str, Any]) -> None:
    if chance.random() < how["hangs"]:
        await asyncio.sleep(1e6)
    fails = chance.random() < how["fails"]
    await asyncio.sleep(chance.expovariate(1 / how["takes_s"]))
    if fails:
        raise ValueError("as drawn")
