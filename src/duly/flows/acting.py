"""Acting for a principal: its own schedules, documents and jobs.

The same calls serve handlers, the application's routes and agents: what they create belongs to the
principal, and `by` records the actual requester. No call reaches what another scope owns; a job
belongs to the principal if it has the principal's scope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, Unpack

from duly.errors import InvalidInput, shown
from duly.flows.collections import (
    ResourceCollection,
    ResourceKind,
    ScheduleCollection,
    ScopedCollection,
    ScopedSchedules,
)
from duly.flows.job_answers import granted, no_such_job, result_of
from duly.flows.job_requests import JobOptions
from duly.model.jobs import Job, JobId
from duly.model.principals import Principal
from duly.model.scopes import Scope
from duly.model.stored_jobs import Enqueued
from duly.stores.port import Store

T = TypeVar("T")


class Enqueue(Protocol):
    """A function that stores one job."""

    async def __call__(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued: ...


class HasName(Protocol):
    """The part of a flow that its schedules need."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Reach:
    """The objects to act on: an application's store, its flows' schedules and its queue."""

    store: Store
    schedules: Callable[[str], ScheduleCollection]
    enqueue: Enqueue


class Acting:
    """The calls that one principal may make; create one with Duly.acting_for()."""

    def __init__(
        self, reach: Reach, principal: Principal, by: str, correlation_id: str | None = None
    ) -> None:
        self.principal = principal
        self.by = by
        self._reach = reach
        self._correlation_id = correlation_id

    def schedules(self, flow: HasName | str) -> ScopedSchedules:
        """Return its schedules in a flow; a user's count in the workspace that the user carries."""
        name: str = flow if isinstance(flow, str) else getattr(flow, "name", "")
        who = self.principal
        return self._reach.schedules(name).of(who.scope, by=self.by, workspace=who.org_id)

    def resources(self, kind: ResourceKind[T] | ResourceCollection[T]) -> ScopedCollection[T]:
        """Return its documents of a kind."""
        found = kind.on(self._reach.store) if isinstance(kind, ResourceKind) else kind
        return found.of(self.principal.scope)

    async def enqueue(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Store a job that runs as the principal; refuse the scope or workspace of another.

        Only the system may name another scope, since it starts work for others.
        """
        requested = options.get("scope")
        if requested is None or Scope.of(requested) == self.principal.scope:
            options["scope"] = self.principal.scope
            self._confine_workspace(options)
        elif not self.principal.is_system:
            raise InvalidInput(
                f"scope is {shown(requested)}, but {self.principal.scope} is acted for and may "
                f"start jobs only for itself; omit scope=, or use the client of the application"
            )
        options.setdefault("correlation_id", self._correlation_id)
        return await self._reach.enqueue(action, input, **options)

    def _confine_workspace(self, options: JobOptions) -> None:
        own = self.principal.workspace
        requested = options.get("workspace")
        if requested not in (None, own) and not self.principal.is_system:
            raise InvalidInput(
                f"workspace is {shown(requested)}, but the jobs of {self.principal.scope} count in "
                f"{own!r}; omit workspace=, or act for a Principal that has this workspace"
            )
        options["workspace"] = requested or own

    async def job(self, job_id: JobId) -> Job | None:
        """Return one of its jobs; None for any other id, known or not."""
        found = await self._reach.store.get_job(job_id)
        return found if found is not None and found.scope == str(self.principal.scope) else None

    async def result(self, job_id: JobId) -> Any:
        """Return the result of one of its jobs.

        NotFound: not one of its jobs. Conflict: it has not, or not yet, succeeded.
        """
        return result_of(job_id, await self.job(job_id))

    async def cancel(self, job_id: JobId, *, reason: str | None = None) -> Job:
        """Cancel one of its jobs that has not started; ask a running one to stop.

        NotFound: not one of its jobs. Conflict: it has ended.
        """
        # The scope of a job never changes, so the check still holds at the write.
        if await self.job(job_id) is None:
            raise no_such_job(job_id)
        answer = await self._reach.store.cancel_job(job_id, by=self.by, reason=reason)
        return granted(answer, "cancelled")


class Access:
    """The same calls inside a handler; `schedules` are those of the action's own flow."""

    def __init__(self, acting: Acting, flow: str) -> None:
        self._acting = acting
        self._flow = flow

    @property
    def principal(self) -> Principal:
        """The principal that is acted for."""
        return self._acting.principal

    @property
    def schedules(self) -> ScopedSchedules:
        """Its schedules in the action's flow."""
        return self._acting.schedules(self._flow)

    def resources(self, kind: ResourceKind[T] | ResourceCollection[T]) -> ScopedCollection[T]:
        """Return its documents of a kind."""
        return self._acting.resources(kind)

    async def enqueue(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Store a job that runs as the principal; refuse the scope or workspace of another."""
        return await self._acting.enqueue(action, input, **options)

    async def job(self, job_id: JobId) -> Job | None:
        """Return one of its jobs; None for any other id, known or not."""
        return await self._acting.job(job_id)

    async def result(self, job_id: JobId) -> Any:
        """Return the result of one of its jobs."""
        return await self._acting.result(job_id)

    async def cancel(self, job_id: JobId, *, reason: str | None = None) -> Job:
        """Cancel one of its jobs that has not started; ask a running one to stop."""
        return await self._acting.cancel(job_id, reason=reason)
