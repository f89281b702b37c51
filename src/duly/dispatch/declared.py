"""Static schedules in dispatch: addressed as `system/<name>`, or by the bare name.

They need no row in the store; if there is one, it decides whether the schedule is enabled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from duly.dispatch.ids import DispatchId
from duly.flows.flow import Flow
from duly.flows.resolved import ScheduleConfig
from duly.model.principals import Principal
from duly.model.schedule_writes import ScheduleKey
from duly.model.scopes import SYSTEM, dispatch_id
from duly.stores.port import Store
from duly.triggers import Cron


def static_target(flow: Flow, target: DispatchId) -> DispatchId:
    """Return the id, with owner `system` if it is the bare name of a static schedule."""
    is_bare = target.owner is None and target.name in flow.statics
    return replace(target, owner=str(SYSTEM)) if is_bare else target


def static_of(flow: Flow, target: DispatchId) -> ScheduleConfig | None:
    """Return the static schedule of this id; None: there is none."""
    declared = flow.statics.get(target.name) if target.owner == str(SYSTEM) else None
    if declared is None:
        return None
    definition = declared.definition
    return ScheduleConfig(
        action=definition.action,
        principal=Principal(),
        input=definition.input,
        trigger=definition.trigger,
        enabled=definition.enabled,
        policies=definition.policies,
    )


async def list_static(store: Store, flow: Flow) -> dict[str, Any]:
    """Return the static schedules of a flow; dynamic ones are not listed."""
    found = []
    for name, declared in sorted(flow.statics.items()):
        definition = declared.definition
        trigger = definition.trigger
        stored = await store.get_schedule(ScheduleKey(flow.name, str(SYSTEM), name))
        found.append(
            {
                "id": dispatch_id(SYSTEM, name),
                "action": definition.action,
                "cron": trigger.expression if isinstance(trigger, Cron) else None,
                "trigger": trigger.to_json(),
                "timezone": trigger.tz,
                "description": definition.description,
                "enabled": (definition if stored is None else stored.definition).enabled,
            }
        )
    return {"static": found, "dynamic": {"provided": True}}
