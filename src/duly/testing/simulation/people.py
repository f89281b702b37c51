"""Simulated users: they create, edit, pause, delete and trigger schedules.

They do not know what the loops are doing, and retry when an answer was lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

from duly.errors import BackendUnavailable, Conflict, NotFound
from duly.flows.collections import ScheduleCollection
from duly.flows.collections.schedules import ScopedSchedules
from duly.model.plans import Backfill
from duly.model.schedules import Limits, Schedule
from duly.model.scopes import SYSTEM, user
from duly.stores.port import Store
from duly.testing.simulation.nodes import NodeStore, Surroundings
from duly.testing.simulation.workload import Drawing

FLOW, ACTION = "simulated", "work"
_TRIES = 3


@dataclass(slots=True)
class Person:
    """A user of the application; never killed, but requests and answers may be lost."""

    name: str = "person"
    is_dead: bool = False
    cut_until_s: float = 0.0

    def die(self, why: str) -> None:
        """Do nothing: users are not killed, only their request may be lost."""


@dataclass(slots=True)
class People:
    """Users that make random requests."""

    around: Surroundings
    draw: Drawing
    names: tuple[str, ...]
    pause_s: float
    """Mean seconds between two requests."""
    store: Store = field(init=False)
    _requests: int = 0

    def __post_init__(self) -> None:
        self.store = cast(Store, NodeStore(self.around, Person()))

    async def act(self) -> None:
        """Make one request after another, until cancelled."""
        for name in self.names:
            await self._try(name, "create")
        chance = self.around.chance
        actions = {
            "create": 4,
            "input": 2,
            "trigger": 2,
            "policies": 2,
            "words": 1,
            "limit": 1,
            "pause": 2,
            "resume": 4,
            "delete": 1,
            "run_now": 2,
            "backfill": 1,
            "pause_failing": 2,
        }
        while True:
            await asyncio.sleep(chance.expovariate(1 / self.pause_s))
            action = chance.choices(list(actions), weights=list(actions.values()))[0]
            await self._try(chance.choice(self.names), action)

    async def _try(self, name: str, action: str) -> None:
        self._requests += 1
        request = f"request {self._requests}"
        self.around.record.note(self.around.clock.now_ms(), "person", f"{action} {name}")
        for _ in range(_TRIES):
            try:
                await self._do(name, action, request)
            except BackendUnavailable:
                continue
            except (Conflict, NotFound):
                pass  # applied by an earlier try whose answer was lost
            return

    async def _do(self, name: str, action: str, request: str) -> None:
        mine = self._schedules(name)
        match action:
            case "create":
                await self._create(mine, name)
            case "input":
                await mine.update(name, input=self.draw.input())
            case "trigger":
                await mine.update(name, trigger=self.draw.trigger())
            case "policies":
                await mine.update(name, policies=self.draw.policies())
            case "limit":
                await mine.update(name, max_runs=self.draw.max_runs())
            case "words":
                await mine.update(name, description=request)
            case "pause":
                await mine.pause(name, note=request)
            case "resume":
                await mine.resume(name)
            case "delete":
                await mine.delete(name)
            case _:
                found = await mine.get(name)
                if found is not None:
                    await self._push(found, action, request)

    def _schedules(self, name: str) -> ScopedSchedules:
        limits = Limits(shortest_interval_ms=1_000)
        scope = SYSTEM if name.startswith("s") else user("ada")
        return ScheduleCollection(self.store, FLOW, limits=limits).of(scope)

    async def _create(self, mine: ScopedSchedules, name: str) -> None:
        draw = self.draw
        await mine.create(
            name,
            draw.trigger(),
            action=ACTION,
            input=draw.input(),
            policies=draw.policies(),
            max_runs=draw.max_runs(),
            enabled=self.around.chance.random() < 0.9,
        )

    async def _push(self, schedule: Schedule, action: str, request: str) -> None:
        if action == "run_now":
            await self.store.run_now(schedule.id, request)
        elif action == "pause_failing":
            await self.store.pause_failing(schedule.id)
        else:
            # Not before the last edit: earlier times belong to the earlier rule.
            now_ms = self.around.clock.now_ms()
            if schedule.updated_at_ms < now_ms:
                await self.store.backfill(
                    Backfill(schedule.id, schedule.updated_at_ms + 1, now_ms, limit=10)
                )
