"""The job context that a slot passes to the handler it runs.

A context knows its job and its deadline; it reaches everything else through the application's
calls.
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
"""The reason why a handler was asked to stop."""


class Isolated(NamedTuple):
    """The outcome of a job that ran in a child process."""

    outcome: Outcome
    took_ms: int | None


class NoChild(DulyError):
    """No child process can be started, for example because the application cannot be imported."""


class Child(Protocol):
    """A process that runs one job at a time."""

    async def run(self, job: LeasedJob) -> Isolated:
        """Run one job and return its outcome; cancellation ends the process."""


class Isolation(Protocol):
    """A pool of child processes for jobs that may have killed their worker."""

    def child(self) -> AbstractAsyncContextManager[Child]:
        """Wait for a free child."""


@dataclass(frozen=True, slots=True)
class SlotContext:
    """The objects that all slots of a worker share."""

    actions: Mapping[str, Action]
    clock: Clock
    threads: Executor
    note_progress: Callable[[LeasedJob, str], None]
    record_start: Callable[[LeasedJob], Awaitable[Start]]
    calls: Calls | None = None
    ask_interval: Callable[[LeasedJob, int], None] | None = None
    """Called with an interval that a running job asked for."""
    isolation: Isolation | None = None
    """Child processes for suspects; None: suspects run in this process."""
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a suspect runs in this process."""


class JobContext:
    """The Context that a worker passes to handlers."""

    __slots__ = (
        "_deadline",
        "_job",
        "_loop",
        "_slot_context",
        "interruption",
        "is_notified",
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
        """The occurrence that the job was made for; None: enqueued, or no longer in the ledger."""
        self.interruption: Interruption | None = None
        self.is_notified = False
        """Whether the handler has been told to stop."""

    @property
    def job_id(self) -> JobId:
        """The id of the job."""
        return self._job.id

    @property
    def queue(self) -> str:
        """The queue that the job waited in."""
        return self._job.queue

    @property
    def workspace_id(self) -> str:
        """The workspace that the job counts in, for fairness."""
        return self._job.workspace

    @property
    def scope(self) -> str:
        """The scope that the job runs as, in its stored form."""
        return self._job.scope

    @property
    def principal(self) -> Principal:
        """The principal that the job runs as."""
        return principal_of(self._job.scope, self._job.workspace)

    @property
    def attempt(self) -> int:
        """The number of this attempt; above 1, the job may have started before."""
        return self._job.attempt

    @property
    def deadline(self) -> datetime:
        """The instant at which this attempt times out."""
        return self._deadline()

    @property
    def cancelled(self) -> bool:
        """Return whether to stop: cancel request, timeout, lost lease or stopping worker."""
        self.is_notified = self.interruption is not None
        return self.is_notified

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the ids of the job."""
        ids = {
            "job_id": self.job_id,
            "action": self._job.action,
            "queue": self.queue,
            "workspace": self.workspace_id,
            "attempt": self.attempt,
        }
        return logging.LoggerAdapter(log, ids)

    def progress(self, percent: float, message: str = "") -> None:
        """Store the job's progress; refuse more than MAX_PROGRESS_BYTES of JSON."""
        note = {"percent": percent, "message": message}
        text = msgspec.json.encode(plain("progress", note, MAX_PROGRESS_BYTES))
        if len(text) > MAX_PROGRESS_BYTES:
            raise InvalidInput(f"progress has {len(text)} bytes; allowed: {MAX_PROGRESS_BYTES}")
        self._slot_context.note_progress(self._job, text.decode())

    @property
    def user(self) -> Access:
        """Access to the user's schedules, documents and jobs; refused if no user is acted for."""
        who = self.principal
        if who.user_id is None:
            raise InvalidInput(
                f"job {self.job_id} runs as {who.scope}, which is not a user; "
                "use ctx.workspace or ctx.system, or enqueue it with scope=user(id)"
            )
        return self._access(who)

    @property
    def workspace(self) -> Access:
        """Access to what the workspace owns; refused if there is no workspace."""
        who = self.principal
        if who.org_id is None:
            raise InvalidInput(
                f"job {self.job_id} runs as {who.scope}, which has no workspace; the "
                "workspace it counts in for fairness is ctx.workspace_id"
            )
        return self._access(Principal(org_id=who.org_id))

    @property
    def system(self) -> Access:
        """Access to what the system owns."""
        return self._access(Principal())

    @property
    def sync(self) -> Sync:
        """The same calls for handlers that are not async."""
        if self._loop is None:
            raise InvalidInput("ctx.sync is for handlers that are not async: await the call itself")
        return Sync(self, Portal(self._loop))

    def lend(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that `sync` runs the calls of a handler on a thread on."""
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
        """Set the interval of this job's schedule if the job succeeds; return the interval in s."""
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
