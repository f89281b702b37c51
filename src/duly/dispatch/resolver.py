"""Resolution of the id of a dispatch URL to a schedule.

The reference resolver reads the collection in the scope that the id names, so an id cannot reach
another owner's data. A flow may have its own resolver, which is told the caller.
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
"""Finished ones too: the store knows the occurrence and the key, and refuses all but a duplicate
and the last post of a tick."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A schedule that was found, in the store or elsewhere."""

    flow: str
    id: ScheduleId
    scope: Scope
    name: str
    origin: Origin
    config: ScheduleConfig
    schedule: Schedule | None
    """The stored schedule; None: it is kept elsewhere."""


@dataclass(frozen=True, slots=True)
class ResolveContext:
    """The argument of a flow's own resolver."""

    flow: str
    target: DispatchId
    gateway_principal: Principal | None
    """The caller's principal; None: the trusted scheduler, whose secret proves no user."""
    nominal_at: datetime | None
    found: Schedule | None
    """The stored schedule that the id names; None: there is none."""
    vouched: list[Principal] = field(default_factory=list)

    @property
    def owner(self) -> Principal | None:
        """The principal that the id names; None: the id is not `<owner>/<name>`."""
        key = self.target.key
        return None if key is None else principal_of(key[0])

    @property
    def stored(self) -> ScheduleConfig | None:
        """The answer of the reference resolver."""
        return None if self.found is None else config_of(self.found)

    def vouch(self, principal: Principal) -> Principal:
        """Let an action run as a principal that the id does not name; return the principal.

        Call it only after checking that the schedule belongs to it: Duly does not check that.
        """
        self.vouched.append(principal)
        return principal

    def may_run_as(self, principal: Principal) -> bool:
        """Return whether a principal is allowed: the system, the owner, or vouched for."""
        if principal.is_system or principal in self.vouched:
            return True
        if self.found is not None and principal.scope == self.found.scope:
            return True
        return self.owner is not None and principal.scope == self.owner.scope


def config_of(schedule: Schedule) -> ScheduleConfig:
    """Return a stored schedule as a resolver's answer; it runs as its owner."""
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
    """Return the stored schedule that an id names; None: missing, or not the caller's."""
    key = None if parse_id is None else _parsed(parse_id, target)
    # An id that the parser refuses may have the usual form, the only one that a tick writes.
    key = target.key if key is None else key
    if key is None:
        return None
    scope, name = key
    if by is not None and by.scope != scope:
        return None  # Not read: a gateway with a principal reaches only its own schedules.
    return await store.get_schedule(ScheduleKey(flow, str(scope), name))


def _parsed(parse_id: ParseId, target: DispatchId) -> tuple[Scope, str] | None:
    try:
        return parse_id(target.text)
    except InvalidInput:
        return None  # An id whose parts could not be stored is not one of the parser's.


async def call(function: Callable[..., Any], *given: Any) -> Any:
    """Call the application's code; plain functions run on a thread, since they may block."""
    if inspect.iscoroutinefunction(function):
        return await function(*given)
    answer = await asyncio.to_thread(function, *given)
    return await answer if inspect.isawaitable(answer) else answer
