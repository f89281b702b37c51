"""Duly: where the parts come together.

One object per application: its flows, its store, what calls it (`client`, `admin`) and what runs
while it runs (planner, worker, keeper). Nothing connects before the first use.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack
from weakref import WeakSet

from duly.clock import Clock, SystemClock
from duly.dispatch.options import HttpOptions
from duly.errors import InvalidInput, shown
from duly.flows.acting import Acting, Reach
from duly.flows.client import Client
from duly.flows.collections import Ensured, ScheduleCollection
from duly.flows.collections.requests import Named, ScheduleOptions, TriggerWords
from duly.flows.collections.schema import nearest
from duly.flows.context import Authorize, Calls
from duly.flows.flow import Action, Flow, actions_of
from duly.flows.forks import watch_forks
from duly.flows.job_options import find_action
from duly.flows.portal import Portal, Sync
from duly.flows.static_schedules import StaticReport, reconcile
from duly.model.plans import PlanSettings
from duly.model.principals import Principal, principal_of
from duly.model.scopes import MAX_DISPATCH_ID, SYSTEM, Scope, check_name, check_new_owner
from duly.operate.admin import Admin
from duly.operate.meters import Meters
from duly.operate.observed import observed
from duly.operate.schedule_log import ScheduleLog
from duly.runtime import Keeper, KeeperOptions, Planner, PlannerOptions, Worker, WorkerOptions
from duly.runtime.worker.isolation import Children, find_location, is_possible
from duly.stores import open_store
from duly.stores.port import DispatchStore, ScheduleIndex, Store
from duly.triggers import every

if TYPE_CHECKING:
    from duly.dispatch.tick.tick import Tick
    from duly.web.api.asgi import Surface

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_YOUNG = 20_000
"""Objects that a serving process makes before the garbage collector looks at the young ones."""


class Loop(Protocol):
    """What runs while an application runs."""

    async def run(self) -> None:
        """Go on until stopped."""

    def stop(self) -> None:
        """End soon."""


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
        authorize: Authorize | None = None,
        **store_options: Any,
    ) -> None:
        """`authorize(principal, schedule)`, which may be async, is asked before a schedule's job
        starts; `http=HttpOptions(...)` is about the HTTP surface; whatever else is named goes to
        open_store().
        """
        self.url = url
        self.flows = tuple(flows)
        self.authorize = authorize
        self.actions = actions_of(flows)
        self._clock = clock
        self._workers: WeakSet[Worker] = WeakSet()
        self._aging_ms = int(priority_aging_s * 1000)
        self._look_ahead_s = look_ahead_s
        self.http: HttpOptions = store_options.pop("http", None) or HttpOptions()
        self._store_options = store_options
        self.meters = Meters()
        self._opening = Lock()
        self._opened: Store | None = None
        self._of_parent: Store | None = None
        """Of a forked process: closing it would reach into the connections of its parent."""
        self._tick: Tick | None = None
        watch_forks(self)

    @property
    def store(self) -> Store:
        """The database; opened when it is first asked for."""
        with self._opening:  # threads of sync callers may ask at once
            if self._opened is None:
                opened = open_store(
                    self.url, clock=self._clock, planning=self._planning(), **self._store_options
                )
                queues = {name: action.queue for name, action in self.actions.items()}
                log = ScheduleLog(queues)
                self._opened = observed(opened, self.meters.observers, log.observers)
            return self._opened

    def _planning(self) -> PlanSettings:
        """Return what the actions declare, for the jobs of schedules."""
        return PlanSettings(
            # An operator's command without the application leaves planning to those who have it.
            look_ahead_ms=int(self._look_ahead_s * 1000) if self.actions else 0,
            actions={name: action.options.run for name, action in self.actions.items()},
        )

    @cached_property
    def client(self) -> Client:
        """What the application calls."""
        return Client(self.store, actions=self.actions, aging_ms=self._aging_ms, clock=self._clock)

    @cached_property
    def admin(self) -> Admin:
        """What an operator does; every view is redacted."""
        return Admin(self.store, actions=self.actions)

    def schedules(self, flow: Flow | str) -> ScheduleCollection:
        """The schedules of a flow, checked against its actions; of() gives those of a scope."""
        found = flow if isinstance(flow, Flow) else self._flow(flow)
        return ScheduleCollection(
            self.store,
            found.name,
            limits=found.limits,
            actions=found.actions,
            zones=found.zones,
            fit=found.fit,
        )

    def acting_for(self, who: Principal | Scope, *, by: str | None = None) -> Acting:
        """Act for somebody, from a route or an agent; `by` is who really asks, for the record."""
        if not isinstance(who, Principal | Scope):
            raise InvalidInput(f"acting for {who!r}; pass user(id), workspace(id) or a Principal")
        principal = principal_of(check_new_owner(who)) if isinstance(who, Scope) else who
        asking = str(principal.scope) if by is None else by
        return Acting(self.calls.reach, principal, check_name("by", asking, most=MAX_DISPATCH_ID))

    async def schedule(
        self,
        action: Action | str,
        interval_s: float,
        input: object = None,  # noqa: A002
        workspace: str | None = None,
    ) -> Ensured:
        """See that an action runs at an interval, for a workspace or for the system.

        There is one such schedule for each action and workspace, called like the action: saying it
        again, at every start and from every process, adds none, and changes it if need be.
        """
        full_name, _ = find_action(action, self.actions)
        flow, _, short = full_name.partition(".")
        scope = SYSTEM if workspace is None else Scope("workspace", workspace)
        mine = self.schedules(flow).of(check_new_owner(scope))
        return await mine.ensure(short, every(seconds=interval_s), action=short, input=input)

    async def sync_static(self) -> StaticReport:
        """Bring the store to the schedules that the code declares; running() does it first."""
        reports = [
            await reconcile(self.schedules(flow), flow.statics.values()) for flow in self.flows
        ]
        ensured = tuple(each for report in reports for each in report.ensured)
        for each in ensured:
            if each.outcome != "unchanged":
                log.info(
                    "static schedule %r of flow %s: %s",
                    each.schedule.name,
                    each.schedule.flow,
                    each.outcome,
                    extra={"event": "schedule.static", "schedule_id": each.schedule.id},
                )
        return StaticReport(ensured, tuple(name for report in reports for name in report.deleted))

    def _flow(self, name: str) -> Flow:
        known = {flow.name: flow for flow in self.flows}
        if not isinstance(name, str) or name not in known:
            hint = nearest(name, known)
            raise InvalidInput(f"this application has no flow {shown(name)!r}; {hint}")
        return known[name]

    @property
    def calls(self) -> Calls:
        """What its workers lend to handlers."""
        return Calls(Reach(self.store, self.schedules, self.client.enqueue), self.authorize)

    @cached_property
    def asgi(self) -> Surface:
        """The HTTP surface, to be served alone or mounted in any ASGI application."""
        # Starlette takes a while to import, and a worker never needs it.
        from duly.web.api.asgi import Surface

        return Surface(self)

    @property
    def clock(self) -> Clock:
        """What time it is, where the database is not asked."""
        return SystemClock() if self._clock is None else self._clock

    async def ready(self) -> Store:
        """The store, opened off the loop if it was not yet."""
        opened = self._opened
        return await asyncio.to_thread(lambda: self.store) if opened is None else opened

    async def ticker(self) -> Tick:
        """The tick of this application's flows, which posts to its base URL."""
        if self._tick is None:
            own = self.http.tick.index
            self._tick = self.tick(await self.ready() if own is None else own)
        return self._tick

    async def close_ticker(self) -> None:
        """Let go of the tick's connections; close() does it, too."""
        tick, self._tick = self._tick, None
        if tick is not None:
            await tick.close()

    def tick(self, store: DispatchStore | ScheduleIndex, url: str | None = None) -> Tick:
        """Return a tick that claims from a store or from an index of three methods.

        It posts to the application's base URL, or to another.
        """
        from duly.dispatch.tick.tick import Tick, place_of

        place = place_of(self.http, tuple(flow.name for flow in self.flows), url)
        return Tick(store, place, self.http.tick, clock=self._clock)

    @cached_property
    def _portal(self) -> Portal:
        return Portal()

    @cached_property
    def sync(self) -> Sync:
        """The same calls from code that is not async: `app.sync.client.enqueue(...)`."""
        return Sync(self, self._portal)

    @property
    def given_clock(self) -> Clock | None:
        """The clock that was passed in; None: the database's decides."""
        return self._clock

    def on(self, store: Store) -> Self:
        """The same application on a store that is open already, such as one that a test watches."""
        twin = copy(self)
        twin._opened = store  # noqa: SLF001 - its own kind
        for name in ("client", "admin", "sync", "asgi"):
            twin.__dict__.pop(name, None)
        return twin

    async def close(self) -> None:
        """Let go of the database; closing twice is fine."""
        with self._opening:
            store, self._opened = self._opened, None
            for name in ("client", "admin"):
                self.__dict__.pop(name, None)
        await self.close_ticker()
        if store is not None:
            await store.close()

    def leave_parent(self) -> None:
        """In a forked process: open the database anew when it is asked for."""
        self._opening = Lock()
        if self._opened is not None and self.url != "memory:":
            self._of_parent, self._opened, self._tick = self._opened, None, None
            for name in ("client", "admin"):
                self.__dict__.pop(name, None)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(lambda: self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def worker(self, options: WorkerOptions | None = None) -> Worker:
        """A worker for this application's actions; `run()` it."""
        made = Worker(
            self.store,
            self.actions,
            options,
            clock=self._clock,
            notifies=self.store.capabilities.notifies,
            calls=self.calls,
        )
        children = self._children(made.options)
        if children is not None:
            made.isolate_with(children)
        made.count_with(self.meters.note)
        self._workers.add(made)
        return made

    def _children(self, options: WorkerOptions) -> Children | None:
        """Return child processes for suspects, where another process can import this object."""
        if not options.isolated or not is_possible(self.url):
            return None
        location = find_location(self)
        return None if location is None else Children(location, self.url, options.isolated)

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
        *others: Loop,
    ) -> AsyncIterator[Duly]:
        """Plan and work while the block runs; drained and closed at its end.

        First the static schedules are brought to what the code declares. `others` run beside the
        loops, such as a server. When one ends with an error, the block is cancelled and the error
        raised.
        """
        async with self, asyncio.TaskGroup() as group:
            await self.sync_static()
            loops: list[Loop] = []
            if worker:
                loops.append(self.worker(worker if isinstance(worker, WorkerOptions) else None))
            if keeper:
                loops.append(self.keeper(keeper if isinstance(keeper, KeeperOptions) else None))
            if planner:
                loops.append(self.planner(planner if isinstance(planner, PlannerOptions) else None))
            loops += others
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
        *others: Loop,
    ) -> None:
        """Plan and work until SIGTERM or SIGINT, then drain; a second SIGINT cuts that short."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in _SIGNALS:
            with suppress(NotImplementedError):  # not on every platform
                loop.add_signal_handler(number, self._stop, stopping, number)
        try:
            async with _calm_collector(), self.running(worker, keeper, planner, *others):
                log.info("serving %s", self.safe_url, extra={"event": "app.serving"})
                await stopping.wait()
                log.info(
                    "stopping: running jobs may end; Ctrl-C again gives them back",
                    extra={"event": "app.stopping"},
                )
        finally:
            for number in _SIGNALS:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)

    def _stop(self, stopping: asyncio.Event, number: int) -> None:
        # Only a person asks twice: a supervisor's second SIGTERM must not break handlers off.
        if stopping.is_set() and number == signal.SIGINT:
            for each in self._workers:
                each.hurry()
        stopping.set()

    @property
    def safe_url(self) -> str:
        """The URL without what may be a password."""
        if self.url == "memory:":
            return self.url
        # As in open_store(): only those who need SQLAlchemy wait for its import.
        from duly.stores.sql.opening import shown_url

        return shown_url(self.url)


async def ensure_schedule(
    app: Duly,
    flow: Flow | str,
    name: str,
    trigger: TriggerWords,
    *,
    action: str | Named,
    scope: Scope = SYSTEM,
    **options: Unpack[ScheduleOptions],
) -> Ensured:
    """See that a schedule is as said here, at every start and from every process.

    What changes and what stays is ScopedSchedules.ensure()'s to say.
    """
    return await app.schedules(flow).of(scope).ensure(name, trigger, action=action, **options)


@asynccontextmanager
async def _calm_collector() -> AsyncIterator[None]:
    """Let the garbage collector go less often through a process that serves.

    What is loaded by now stays. The jobs of a claim come and go by the thousand and have no cycles:
    with the usual threshold a tenth of a busy worker's time went into looking for them.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
