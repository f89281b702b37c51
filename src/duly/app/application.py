"""The application object, which connects the parts of Duly.

One object per application: its flows, its store, its interfaces (`client`, `admin`, `asgi`) and its
loops (planner, worker, keeper). Nothing connects before the first use.
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
from typing import TYPE_CHECKING, Protocol, Self, Unpack
from weakref import WeakSet

from duly.app.config import Config, ConfigWords
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
from duly.settings import Settings
from duly.stores import open_store
from duly.stores.port import DispatchStore, ScheduleIndex, Store
from duly.triggers import every

if TYPE_CHECKING:
    from duly.dispatch.tick.tick import Tick
    from duly.web.api.asgi import Surface

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_COLLECTION_THRESHOLD = 20_000
"""Threshold of the young generation of the garbage collector in a serving process."""


class Loop(Protocol):
    """A loop that runs while an application runs."""

    async def run(self) -> None:
        """Run until stopped."""

    def stop(self) -> None:
        """Ask the loop to end."""


class Duly:
    """An application's flows on a database."""

    def __init__(
        self,
        url: str,
        *,
        flows: Collection[Flow] = (),
        config: Config | None = None,
        **options: Unpack[ConfigWords],
    ) -> None:
        """Create an application; nothing connects yet.

        `config` is its configuration. Fields of Config, and of its `database`, may be passed as
        options as well, as in `Duly(url, flows=[mail], connections=10)`.
        """
        self.url = url
        self.flows = tuple(flows)
        self.actions = actions_of(flows)
        self.config = (Config() if config is None else config).with_options(options)
        self._workers: WeakSet[Worker] = WeakSet()
        self.meters = Meters()
        self._opening = Lock()
        self._opened: Store | None = None
        self._of_parent: Store | None = None
        """In a forked process: the parent's store, which must not be closed here."""
        self._tick: Tick | None = None
        watch_forks(self)

    @property
    def store(self) -> Store:
        """The store, opened at its first use."""
        with self._opening:  # threads of sync callers may open it at once
            if self._opened is None:
                database = replace(self.config.database, planning=self._planning())
                opened = open_store(self.url, clock=self.config.clock, options=database)
                queues = {name: action.queue for name, action in self.actions.items()}
                log = ScheduleLog(queues)
                self._opened = observed(opened, self.meters.observers, log.observers)
            return self._opened

    def _planning(self) -> PlanSettings:
        """Return the planning settings: the look-ahead and the actions' declared run options."""
        return PlanSettings(
            # An operator's command without the application's actions leaves planning to others.
            look_ahead_ms=int(self.config.look_ahead_s * 1000) if self.actions else 0,
            actions={name: action.options.run for name, action in self.actions.items()},
        )

    @cached_property
    def client(self) -> Client:
        """The calls of the application."""
        aging_ms = int(self.config.priority_aging_s * 1000)
        return Client(self.store, actions=self.actions, aging_ms=aging_ms, clock=self.config.clock)

    @cached_property
    def admin(self) -> Admin:
        """The calls of an operator; every view is redacted."""
        return Admin(self.store, actions=self.actions)

    def schedules(self, flow: Flow | str) -> ScheduleCollection:
        """Return the schedules of a flow, checked against its actions; of() returns a scope's."""
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
        """Act for a principal, from a route or an agent; `by` records the actual requester."""
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
        """Ensure that an action runs at an interval, for a workspace or for the system.

        There is one such schedule for each action and workspace, named like the action. Repeated
        calls, at every start and from every process, add none; they update it if needed.
        """
        full_name, _ = find_action(action, self.actions)
        flow, _, short = full_name.partition(".")
        scope = SYSTEM if workspace is None else Scope("workspace", workspace)
        mine = self.schedules(flow).of(check_new_owner(scope))
        return await mine.ensure(short, every(seconds=interval_s), action=short, input=input)

    async def sync_static(self) -> StaticReport:
        """Make the stored static schedules match the code; running() does it first."""
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
        """The calls that its workers provide to handlers."""
        return Calls(Reach(self.store, self.schedules, self.client.enqueue), self.authorize)

    @cached_property
    def asgi(self) -> Surface:
        """The HTTP surface, to be served alone or mounted in any ASGI application."""
        # Starlette is slow to import, and a worker never needs it.
        from duly.web.api.asgi import Surface

        return Surface(self)

    @property
    def clock(self) -> Clock:
        """The clock for times that do not come from the database."""
        return SystemClock() if self.config.clock is None else self.config.clock

    @property
    def http(self) -> HttpOptions:
        """The options of the HTTP surface."""
        return self.config.http

    @property
    def authorize(self) -> Authorize | None:
        """The callback that is asked before a schedule's job starts."""
        return self.config.authorize

    @property
    def settings(self) -> Settings:
        """The settings of the process: those of the configuration, else the environment's."""
        own = self.config.settings
        return Settings.from_environment() if own is None else own

    async def ready(self) -> Store:
        """Return the store, opening it on a thread if needed."""
        opened = self._opened
        return await asyncio.to_thread(lambda: self.store) if opened is None else opened

    async def ticker(self) -> Tick:
        """Return the tick of this application's flows, which posts to its base URL."""
        own = self.http.tick.index
        store = await self.ready() if own is None else own
        if self._tick is None:  # asked after the wait: another caller may have made it meanwhile
            self._tick = self.tick(store)
        return self._tick

    async def close_ticker(self) -> None:
        """Close the tick's connections; close() does it too."""
        tick, self._tick = self._tick, None
        if tick is not None:
            await tick.close()

    def tick(self, store: DispatchStore | ScheduleIndex, url: str | None = None) -> Tick:
        """Return a tick that claims from a store or from an index of three methods.

        It posts to the application's base URL, or to `url`.
        """
        from duly.dispatch.tick.tick import Tick, place_of

        names = tuple(flow.name for flow in self.flows)
        place = place_of(self.http, self.settings, names, url)
        return Tick(store, place, self.http.tick, clock=self.config.clock)

    @cached_property
    def _portal(self) -> Portal:
        return Portal()

    @cached_property
    def sync(self) -> Sync:
        """The same calls from code that is not async: `app.sync.client.enqueue(...)`."""
        return Sync(self, self._portal)

    def on(self, store: Store) -> Self:
        """Return this application on a store that is already open, such as one under test."""
        twin = copy(self)
        twin._opened, twin._tick = store, None  # noqa: SLF001 - its own kind
        for name in ("client", "admin", "sync", "asgi"):
            twin.__dict__.pop(name, None)
        return twin

    async def close(self) -> None:
        """Close the store and the tick's connections; closing twice is allowed."""
        with self._opening:
            store, self._opened = self._opened, None
            for name in ("client", "admin"):
                self.__dict__.pop(name, None)
        await self.close_ticker()
        if store is not None:
            await store.close()

    def detach_from_parent(self) -> None:
        """Prepare a forked process: the database is opened again at its next use."""
        self._opening = Lock()
        self._tick = None
        if self._opened is not None and self.url != "memory:":
            self._of_parent, self._opened = self._opened, None
            for name in ("client", "admin"):
                self.__dict__.pop(name, None)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(lambda: self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def worker(self, options: WorkerOptions | None = None) -> Worker:
        """Return a worker for this application's actions; call its run()."""
        made = Worker(
            self.store,
            self.actions,
            self.config.worker if options is None else options,
            clock=self.config.clock,
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
        """Return child processes for suspects; None: no other process can import this object."""
        if not options.isolated or not is_possible(self.url):
            return None
        location = find_location(self)
        return None if location is None else Children(location, self.url, options.isolated)

    def keeper(self, options: KeeperOptions | None = None) -> Keeper:
        """Return a keeper; call its run()."""
        return Keeper(self.store, self.config.keeper if options is None else options)

    def planner(self, options: PlannerOptions | None = None) -> Planner:
        """Return a planner, by default for this application's flows; call its run()."""
        options = self.config.planner if options is None else options
        if options.look_ahead_s is None:
            options = replace(options, look_ahead_s=self.config.look_ahead_s)
        if options.flows is None:
            # Rows of unknown flows belong to another application or release.
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
        """Plan and work while the block runs; drain and close at its end.

        First the stored static schedules are made to match the code. `others`, such as a server,
        run next to the loops. If a loop ends with an error, the block is cancelled and the error is
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
            async with _infrequent_collection(), self.running(worker, keeper, planner, *others):
                log.info("serving %s", self.safe_url, extra={"event": "app.serving"})
                await stopping.wait()
                log.info(
                    "stopping: running jobs may end; Ctrl-C again releases them",
                    extra={"event": "app.stopping"},
                )
        finally:
            for number in _SIGNALS:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)

    def _stop(self, stopping: asyncio.Event, number: int) -> None:
        # Only a person interrupts twice: a supervisor's second SIGTERM must not interrupt handlers.
        if stopping.is_set() and number == signal.SIGINT:
            for each in self._workers:
                each.stop_now()
        stopping.set()

    @property
    def safe_url(self) -> str:
        """The URL without a password."""
        if self.url == "memory:":
            return self.url
        # As in open_store(): SQLAlchemy is imported only if it is needed.
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
    """Create or update a schedule; safe to repeat at every start and from every process.

    See ScopedSchedules.ensure() for what changes and what stays.
    """
    return await app.schedules(flow).of(scope).ensure(name, trigger, action=action, **options)


@asynccontextmanager
async def _infrequent_collection() -> AsyncIterator[None]:
    """Run the garbage collector less often in a serving process.

    Objects loaded so far are exempt. The jobs of a claim come and go by the thousand and have no
    cycles: at the usual threshold, a tenth of a busy worker's time went into looking for them.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_COLLECTION_THRESHOLD, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
