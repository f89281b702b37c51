"""Station 6: what a slot lends to the handler it runs.

A context knows its job and nothing of the slot but when the time is up; whatever it reaches beyond
that are the calls of the application.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, Unpack

import msgspec

from duly.clock import Clock
from duly.errors import DulyError, InvalidInput
from duly.flows.acting import Access, Acting
from duly.flows.collections.schema import plain
from duly.flows.context import Calls
from duly.flows.flow import Action
from duly.flows.job_requests import JobOptions
from duly.flows.portal import Portal, Sync
from duly.model.jobs import MAX_PROGRESS_BYTES, JobId, LeasedJob
from duly.model.ledger import Occurrence
from duly.model.principals import Principal, principal_of
from duly.model.schedules import Schedule, ScheduleId, clamp_interval_ms
from duly.model.stored_jobs import Enqueued
from duly.rules.outcomes import Outcome
from duly.runtime.worker.starts import Start

log = logging.getLogger("duly.job")

Interruption = Literal["timeout", "cancel", "lost", "stop"]
"""Why a handler was asked to stop."""


class Isolated(NamedTuple):
    """How a job ended in a child process."""

    outcome: Outcome
    took_ms: int | None


class NoChild(DulyError):
    """No child process can be started: the application cannot be imported, for example."""


class Child(Protocol):
    """A process that runs one job at a time."""

    async def run(self, job: LeasedJob) -> Isolated:
        """Run one job; cancelling it ends the process."""


class Isolation(Protocol):
    """Has child processes for jobs that may have killed their worker."""

    def child(self) -> AbstractAsyncContextManager[Child]:
        """Wait for a child that is free."""


@dataclass(frozen=True, slots=True)
class SlotContext:
    """What all slots of a worker share."""

    actions: Mapping[str, Action]
    clock: Clock
    threads: Executor
    note_progress: Callable[[LeasedJob, str], None]
    record_start: Callable[[LeasedJob], Awaitable[Start]]
    calls: Calls | None = None
    ask_interval: Callable[[LeasedJob, int], None] | None = None
    """Keeps an interval that a running job asked for."""
    isolation: Isolation | None = None
    """Child processes for suspects; None: they run in this process."""
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a suspect that runs in this process."""


class JobContext:
    """What a handler may know and say about the job it runs."""

    __slots__ = (
        "_deadline",
        "_job",
        "_loop",
        "_slot_context",
        "interruption",
        "is_told",
        "schedule",
    )

    def __init__(
        self, job: LeasedJob, slot_context: SlotContext, deadline: Callable[[], datetime]
    ) -> None:
        self._job = job
        self._slot_context = slot_context
        self._deadline = deadline
        self._loop: asyncio.AbstractEventLoop | None = None
        self.schedule: Occurrence | None = None
        """The occurrence that started it."""
        self.interruption: Interruption | None = None
        self.is_told = False
        """Whether the handler knows that it should stop."""

    @property
    def job_id(self) -> JobId:
        """Of the job."""
        return self._job.id

    @property
    def queue(self) -> str:
        """Where it was waiting."""
        return self._job.queue

    @property
    def workspace_id(self) -> str:
        """Where the job counts, for fairness."""
        return self._job.workspace

    @property
    def scope(self) -> str:
        """Who it runs as, in the stored form."""
        return self._job.scope

    @property
    def principal(self) -> Principal:
        """Who it runs as."""
        return principal_of(self._job.scope, self._job.workspace)

    @property
    def attempt(self) -> int:
        """The number of this attempt: more than 1 means that the job may have begun before."""
        return self._job.attempt

    @property
    def deadline(self) -> datetime:
        """When the time for this attempt is up."""
        return self._deadline()

    @property
    def cancelled(self) -> bool:
        """Whether to stop: somebody asked, the time is up, or the job is no longer ours."""
        self.is_told = self.interruption is not None
        return self.is_told

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the ids."""
        ids = {
            "job_id": self.job_id,
            "action": self._job.action,
            "queue": self.queue,
            "workspace": self.workspace_id,
            "attempt": self.attempt,
        }
        return logging.LoggerAdapter(log, ids)

    def progress(self, percent: float, message: str = "") -> None:
        """Keep how far it is beside the job."""
        said = {"percent": percent, "message": message}
        text = msgspec.json.encode(plain("progress", said, MAX_PROGRESS_BYTES))
        if len(text) > MAX_PROGRESS_BYTES:
            raise InvalidInput(f"progress of {len(text)} bytes; allowed: {MAX_PROGRESS_BYTES}")
        self._slot_context.note_progress(self._job, text.decode())

    @property
    def user(self) -> Access:
        """The user's own schedules and documents."""
        who = self.principal
        if who.user_id is None:
            raise InvalidInput(
                f"job {self.job_id} runs as {who.scope}, which is no user; "
                "use ctx.workspace or ctx.system, or enqueue it with scope=user(id)"
            )
        return self._access(who)

    @property
    def workspace(self) -> Access:
        """Those of the workspace."""
        who = self.principal
        if who.org_id is None:
            raise InvalidInput(
                f"job {self.job_id} runs as {who.scope}, which has no workspace; its place in "
                "the queue is ctx.workspace_id"
            )
        return self._access(Principal(org_id=who.org_id))

    @property
    def system(self) -> Access:
        """Those of nobody in particular."""
        return self._access(Principal())

    @property
    def sync(self) -> Sync:
        """The same calls for a handler that is not async."""
        if self._loop is None:
            raise InvalidInput("ctx.sync is for handlers that are not async: await the call itself")
        return Sync(self, Portal(self._loop))

    def lend(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a handler on a thread wait for what this loop does."""
        self._loop = loop

    async def enqueue(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Store a job that runs as the same principal and carries the same correlation id."""
        return await self._acting(self.principal).enqueue(action, input, **options)

    async def ask_interval(self, seconds: float) -> float:
        """Ask that the schedule of this job fires so often, if the job succeeds."""
        found = await self._schedule()
        interval_ms = clamp_interval_ms(found.definition, round(seconds * 1000))
        if self._slot_context.ask_interval is not None:
            self._slot_context.ask_interval(self._job, interval_ms)
        return interval_ms / 1000

    async def _schedule(self) -> Schedule:
        if self._job.schedule_id is None:
            raise InvalidInput(f"job {self.job_id} was not started by a schedule")
        store = self._calls().reach.store
        found = await store.find_schedule(ScheduleId(self._job.schedule_id))
        if found is None:
            raise InvalidInput(f"the schedule of job {self.job_id} was deleted")
        return found

    def _access(self, principal: Principal) -> Access:
        return Access(self._acting(principal), self._job.action.partition(".")[0])

    def _acting(self, principal: Principal) -> Acting:
        reach = self._calls().reach
        return Acting(reach, principal, str(self.principal.scope), self._job.correlation_id)

    def _calls(self) -> Calls:
        if self._slot_context.calls is None:
            raise InvalidInput("this worker has no application to call; make it with app.worker()")
        return self._slot_context.calls
