"""Acting for somebody: a principal's own schedules, documents and jobs.

The same calls for a handler, for a route of the application, and for an agent: whoever acts, what
is made belongs to the principal, and `by` keeps who really asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, Unpack

from duly.job_requests import JobOptions
from duly.job_store import Enqueued
from duly.principals import Principal
from duly.resources import (
    ResourceCollection,
    ResourceKind,
    ScheduleCollection,
    ScopedCollection,
    ScopedSchedules,
)
from duly.store import Store

T = TypeVar("T")


class Enqueue(Protocol):
    """Stores one job."""

    async def __call__(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued: ...


class HasName(Protocol):
    """A flow, as far as its schedules need to know it."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Reach:
    """What there is to act on: an application's store, its flows' schedules and its queue."""

    store: Store
    schedules: Callable[[str], ScheduleCollection]
    enqueue: Enqueue


class Acting:
    """What one principal may reach; make one with Duly.acting_for()."""

    def __init__(
        self, reach: Reach, principal: Principal, by: str, correlation_id: str | None = None
    ) -> None:
        self.principal = principal
        self.by = by
        self._reach = reach
        self._correlation_id = correlation_id

    def schedules(self, flow: HasName | str) -> ScopedSchedules:
        """Their schedules in a flow; those of a user who carries a workspace count there."""
        name = flow if isinstance(flow, str) else flow.name
        who = self.principal
        return self._reach.schedules(name).of(who.scope, by=self.by, workspace=who.org_id)

    def resources(self, kind: ResourceKind[T] | ResourceCollection[T]) -> ScopedCollection[T]:
        """Their documents of a kind."""
        found = kind.on(self._reach.store) if isinstance(kind, ResourceKind) else kind
        return found.of(self.principal.scope)

    async def enqueue(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Store a job that runs as them, unless told otherwise."""
        if "scope" not in options:
            options.setdefault("workspace", self.principal.workspace)
            options["scope"] = self.principal.scope
        options.setdefault("correlation_id", self._correlation_id)
        return await self._reach.enqueue(action, input, **options)


class Access:
    """The same inside a handler: `schedules` are those of the action's own flow."""

    def __init__(self, acting: Acting, flow: str) -> None:
        self._acting = acting
        self._flow = flow

    @property
    def principal(self) -> Principal:
        """Who is acted for."""
        return self._acting.principal

    @property
    def schedules(self) -> ScopedSchedules:
        """Their schedules in the action's flow."""
        return self._acting.schedules(self._flow)

    def resources(self, kind: ResourceKind[T] | ResourceCollection[T]) -> ScopedCollection[T]:
        """Their documents of a kind."""
        return self._acting.resources(kind)

    async def enqueue(
        self,
        action: Any,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Store a job that runs as them, unless told otherwise."""
        return await self._acting.enqueue(action, input, **options)
