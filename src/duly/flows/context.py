"""The context that a handler gets: its job, and the calls it may make.

Only interfaces; the application that runs the worker provides the calls.
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
    """The running job, as its handler sees it."""

    @property
    def job_id(self) -> JobId:
        """The id of the job."""

    @property
    def queue(self) -> str:
        """The queue that the job waited in."""

    @property
    def workspace_id(self) -> str:
        """The workspace that the job counts in, for fairness."""

    @property
    def scope(self) -> str:
        """The scope that the job runs as, in its stored form."""

    @property
    def principal(self) -> Principal:
        """The principal that the job runs as."""

    @property
    def attempt(self) -> int:
        """The number of this attempt; above 1, the job may have started before."""

    @property
    def deadline(self) -> datetime:
        """The instant at which this attempt times out."""

    @property
    def cancelled(self) -> bool:
        """Return whether to stop: cancel request, timeout, lost lease or stopping worker."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the ids of the job."""

    @property
    def schedule(self) -> Occurrence | None:
        """The occurrence that the job was made for; None: enqueued, or no longer in the ledger."""

    @property
    def user(self) -> Access:
        """Access to the user's schedules, documents and jobs; refused if no user is acted for."""

    @property
    def workspace(self) -> Access:
        """Access to what the workspace owns; refused if there is no workspace."""

    @property
    def system(self) -> Access:
        """Access to what the system owns."""

    @property
    def sync(self) -> Sync:
        """The same calls for handlers that are not async: `ctx.sync.user.schedules.create(...)`."""

    def progress(self, percent: float, message: str = "") -> None:
        """Store the job's progress; cheap, since it is written in batches."""

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
        """Set the interval of this job's schedule, in seconds, if the job succeeds.

        Return the interval clamped to the bounds of the schedule. Refused if the schedule has no
        bounds or is not an interval.
        """


Authorize = Callable[[Principal, Schedule], bool | Awaitable[bool]]
"""Returns whether a schedule may run as a principal; called before each start."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls that an application provides to the handlers of a worker."""

    reach: Reach
    authorize: Authorize | None = None
