"""What a handler may know and say about the job it runs, and what it reaches from there.

The calls are put in by the application that runs the worker; nothing here knows how.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Unpack

from duly.flows.acting import Access, Reach
from duly.flows.job_requests import JobOptions
from duly.flows.portal import Sync
from duly.model.jobs import JobId
from duly.model.ledger import Occurrence
from duly.model.principals import Principal
from duly.model.schedules import Schedule
from duly.model.stored_jobs import Enqueued


class Context(Protocol):
    """What a handler may know and say about the job it runs."""

    @property
    def job_id(self) -> JobId:
        """Of the job."""

    @property
    def queue(self) -> str:
        """Where it was waiting."""

    @property
    def workspace_id(self) -> str:
        """Where the job counts, for fairness."""

    @property
    def scope(self) -> str:
        """Who it runs as, in the stored form."""

    @property
    def principal(self) -> Principal:
        """Who it runs as."""

    @property
    def attempt(self) -> int:
        """The number of this attempt: more than 1 means that the job may have begun before."""

    @property
    def deadline(self) -> datetime:
        """When the time for this attempt is up."""

    @property
    def cancelled(self) -> bool:
        """Whether to stop: somebody asked, the time is up, or the job is no longer ours."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the ids."""

    @property
    def schedule(self) -> Occurrence | None:
        """The occurrence that started it; None: it was enqueued, or the ledger has forgotten."""

    @property
    def user(self) -> Access:
        """The user's own schedules and documents; refused where no user is acted for."""

    @property
    def workspace(self) -> Access:
        """Those of the workspace; refused where there is none."""

    @property
    def system(self) -> Access:
        """Those of nobody in particular."""

    @property
    def sync(self) -> Sync:
        """The same calls for a handler that is not async: `ctx.sync.user.schedules.create(...)`."""

    def progress(self, percent: float, message: str = "") -> None:
        """Keep how far it is beside the job; cheap, stored by and by."""

    async def enqueue(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Store a job that runs as the same principal and carries the same correlation id.

        Only a job of the system may name the scope or workspace of another.
        """

    async def ask_interval(self, seconds: float) -> float:
        """Ask that the schedule of this job fires so often, if the job succeeds.

        Gives what it will be: never outside the bounds that the schedule sets. Refused where the
        schedule sets none, or is not an interval.
        """


Authorize = Callable[[Principal, Schedule], bool | Awaitable[bool]]
"""Whether a schedule may still act as a principal; asked each time it is about to."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What an application lends to the handlers of a worker."""

    reach: Reach
    authorize: Authorize | None = None
