"""Duly: where the parts come together.

One object per application: its flows, its store, what calls it (`client`, `admin`) and what runs
while it runs (planner, worker, keeper). Nothing connects before the first use.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any, Self

from duly.admin import Admin
from duly.client import Client
from duly.clock import Clock
from duly.flows import Flow, actions_of
from duly.loops import (
    Keeper,
    KeeperOptions,
    Planner,
    PlannerOptions,
    Worker,
    WorkerOptions,
)
from duly.plan_store import ActionDefaults, PlanSettings
from duly.portal import Portal, Sync
from duly.store import Store
from duly.stores import open_store

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Duly:
    """An application's flows on a database."""

    def __init__(
        self,
        url: str,
        *,
        flows: Collection[Flow] = (),
        clock: Clock | None = None,
        priority_aging_s: float = 0,
        look_ahead_s: float = 60,
        **store_options: Any,
    ) -> None:
        self.url = url
        self.flows = tuple(flows)
        self.actions = actions_of(flows)
        self._clock = clock
        self._aging_ms = int(priority_aging_s * 1000)
        self._look_ahead_s = look_ahead_s
        self._store_options = store_options
        self._opening = Lock()
        self._opened: Store | None = None

    @property
    def store(self) -> Store:
        """The database; opened when it is first asked for."""
        with self._opening:  # threads of sync callers may ask at once
            if self._opened is None:
                self._opened = open_store(
                    self.url, clock=self._clock, planning=self._planning(), **self._store_options
                )
            return self._opened

    def _planning(self) -> PlanSettings:
        """What schedules' jobs take from the actions."""
        return PlanSettings(
            look_ahead_ms=int(self._look_ahead_s * 1000),
            actions={
                name: ActionDefaults(action.queue, action.retry, action.timeout_ms)
                for name, action in self.actions.items()
            },
        )

    @cached_property
    def client(self) -> Client:
        """What the application calls."""
        return Client(self.store, actions=self.actions, aging_ms=self._aging_ms, clock=self._clock)

    @cached_property
    def admin(self) -> Admin:
        """What an operator does; every view is redacted."""
        return Admin(self.store, actions=self.actions)

    @cached_property
    def _portal(self) -> Portal:
        return Portal()

    @cached_property
    def sync(self) -> Sync:
        """The same calls from code that is not async: `app.sync.client.enqueue(...)`."""
        return Sync(self, self._portal)

    async def close(self) -> None:
        """Let go of the database; closing twice is fine."""
        with self._opening:
            store, self._opened = self._opened, None
            for name in ("client", "admin"):
                self.__dict__.pop(name, None)
        if store is not None:
            await store.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(lambda: self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def worker(self, options: WorkerOptions | None = None) -> Worker:
        """A worker for this application's actions; `run()` it."""
        return Worker(
            self.store,
            self.actions,
            options,
            clock=self._clock,
            notifies=self.store.capabilities.notifies,
        )

    def keeper(self, options: KeeperOptions | None = None) -> Keeper:
        """A keeper; `run()` it."""
        return Keeper(self.store, options)

    def planner(self, options: PlannerOptions | None = None) -> Planner:
        """A planner for this application's flows, unless told others; `run()` it."""
        options = PlannerOptions() if options is None else options
        if options.look_ahead_s is None:
            options = replace(options, look_ahead_s=self._look_ahead_s)
        if options.flows is None:
            # Rows of flows that nobody here knows belong to another application or release.
            options = replace(options, flows=tuple(flow.name for flow in self.flows))
        return Planner(self.store, options)

    @asynccontextmanager
    async def running(
        self,
        worker: WorkerOptions | bool = True,
        keeper: KeeperOptions | bool = True,
        planner: PlannerOptions | bool = True,
    ) -> AsyncIterator[Duly]:
        """Plan and work while the block runs; drained and closed at its end.

        When a loop ends with an error, the block is cancelled and the error raised.
        """
        async with self, asyncio.TaskGroup() as group:
            loops: list[Worker | Keeper | Planner] = []
            if worker:
                loops.append(self.worker(worker if isinstance(worker, WorkerOptions) else None))
            if keeper:
                loops.append(self.keeper(keeper if isinstance(keeper, KeeperOptions) else None))
            if planner:
                loops.append(self.planner(planner if isinstance(planner, PlannerOptions) else None))
            for each in loops:
                group.create_task(each.run())
            try:
                yield self
            finally:
                for each in loops:
                    each.stop()

    async def serve(
        self,
        worker: WorkerOptions | bool = True,
        keeper: KeeperOptions | bool = True,
        planner: PlannerOptions | bool = True,
    ) -> None:
        """Plan and work until SIGTERM or SIGINT, then drain."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in _SIGNALS:
            with suppress(NotImplementedError):  # not on every platform
                loop.add_signal_handler(number, stopping.set)
        try:
            async with self.running(worker, keeper, planner):
                log.info("serving %s", self.safe_url, extra={"event": "app.serving"})
                await stopping.wait()
                log.info("stopping", extra={"event": "app.stopping"})
        finally:
            for number in _SIGNALS:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)

    @property
    def safe_url(self) -> str:
        """The URL without what may be a password."""
        address, at, rest = self.url.rpartition("@")
        return self.url if not at else f"{address.split('://', 1)[0]}://***@{rest}"
