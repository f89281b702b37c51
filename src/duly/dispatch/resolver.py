"""From the id of a dispatch URL to a schedule.

The reference resolver reads the collection in the scope that the id names, so an id aimed at
somebody else's data finds nothing. A flow may bring its own resolver, which sees who asks.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from duly.dispatch.contract import Origin
from duly.dispatch.ids import DispatchId
from duly.dispatch.options import ParseId
from duly.errors import InvalidInput
from duly.flows.resolved import ScheduleConfig
from duly.model.principals import Principal, principal_of
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import Schedule, ScheduleId
from duly.model.scopes import Scope
from duly.stores.port import Store

T = TypeVar("T")
_DISPATCHABLE = frozenset({"active", "finished"})
"""Finished too: the store, which knows the occurrence and the key, refuses all but a duplicate and
the last post of a tick."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A schedule that was found, wherever it is kept."""

    flow: str
    id: ScheduleId
    scope: Scope
    name: str
    origin: Origin
    config: ScheduleConfig
    schedule: Schedule | None
    """As stored, where it is stored here."""


@dataclass(frozen=True, slots=True)
class ResolveContext:
    """What a flow's own resolver may know."""

    flow: str
    target: DispatchId
    gateway_principal: Principal | None
    """Who asks; None: the trusted scheduler, whose secret proves no user."""
    nominal_at: datetime | None
    found: Schedule | None
    """The stored schedule that the id names, if there is one."""
    vouched: list[Principal] = field(default_factory=list)

    @property
    def owner(self) -> Principal | None:
        """Whom the id names, if it is of the form `<owner>/<name>`."""
        key = self.target.key
        return None if key is None else principal_of(key[0])

    @property
    def stored(self) -> ScheduleConfig | None:
        """What the reference resolver would answer."""
        return None if self.found is None else config_of(self.found)

    def vouch(self, principal: Principal) -> Principal:
        """Let an action run as somebody whom the id does not name.

        Call it after you have checked that the schedule is theirs: nobody else does.
        """
        self.vouched.append(principal)
        return principal

    def may_run_as(self, principal: Principal) -> bool:
        """Whether an answer may name this principal: the system, the owner, or vouched for."""
        if principal.is_system or principal in self.vouched:
            return True
        if self.found is not None and principal.scope == self.found.scope:
            return True
        return self.owner is not None and principal.scope == self.owner.scope


def config_of(schedule: Schedule) -> ScheduleConfig:
    """A stored schedule as a resolver's answer: it runs as its owner."""
    definition = schedule.definition
    return ScheduleConfig(
        action=definition.action,
        input=definition.input,
        trigger=definition.trigger,
        principal=principal_of(schedule.scope, definition.workspace),
        enabled=schedule.state in _DISPATCHABLE,
        policies=definition.policies,
    )


async def find_stored(
    store: Store, flow: str, target: DispatchId, parse_id: ParseId | None, by: Principal | None
) -> Schedule | None:
    """The stored schedule that an id names, if whoever asks may know of it."""
    key = None if parse_id is None else _parsed(parse_id, target)
    # What the parser does not know may be of the usual form: a tick writes no other.
    key = target.key if key is None else key
    if key is None:
        return None
    scope, name = key
    if by is not None and by.scope != scope:
        return None  # Not even read: a gateway with a principal has its own schedules only.
    return await store.get_schedule(ScheduleKey(flow, str(scope), name))


def _parsed(parse_id: ParseId, target: DispatchId) -> tuple[Scope, str] | None:
    try:
        return parse_id(target.text)
    except InvalidInput:
        return None  # An id whose parts could not be stored is not one of the parser's.


async def call(function: Callable[..., Any], *given: Any) -> Any:
    """Ask the application's code; plain functions on a thread, since they may block."""
    if inspect.iscoroutinefunction(function):
        return await function(*given)
    answer = await asyncio.to_thread(function, *given)
    return await answer if inspect.isawaitable(answer) else answer
