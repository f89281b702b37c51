"""Validation of a resolved schedule: its action, trigger and policies. Pure.

A mistake is refused as `invalid_schedule` with a message.
"""

from __future__ import annotations

from dataclasses import dataclass

from duly.dispatch.contract import refusal
from duly.dispatch.resolver import Resolved
from duly.errors import InvalidInput, shown
from duly.flows.collections.schema import nearest
from duly.flows.flow import Action, Flow
from duly.model.principals import Principal
from duly.model.schedules import Definition, Policies, Schedule
from duly.triggers import Trigger, once, parse_trigger
from duly.triggers.instants import STORED_FROM_MS, from_ms


@dataclass(frozen=True, slots=True)
class Checked:
    """The checked parts of a resolved schedule."""

    action: Action
    trigger: Trigger | None
    """The bound trigger; None: unknown here, as the times are kept elsewhere."""
    principal: Principal
    policies: Policies


def validated(flow: Flow, resolved: Resolved) -> Checked:
    """Return the checked parts; refuse a bad trigger, an unknown action or bad policies."""
    config = resolved.config
    try:
        action = _action(flow, config.action)
        policies = _policies(config.policies)
        return Checked(action, _trigger(flow, resolved), config.principal, policies)
    except InvalidInput as error:
        raise refusal(400, "invalid_schedule", str(error)) from None


def _action(flow: Flow, given: object) -> Action:
    known = flow.actions.values()
    found = next((each for each in known if each is given), None)
    if found is None and isinstance(given, str):
        found = flow.actions.get(given.removeprefix(f"{flow.name}."))
    if found is None:
        hint = nearest(given, flow.actions) if isinstance(given, str) else "pass one of its actions"
        raise InvalidInput(f"flow {flow.name!r} has no action {shown(given)!r}; {hint}")
    return found


def _policies(given: object) -> Policies:
    if not isinstance(given, Policies):
        raise InvalidInput(f"policies {shown(given)}; pass Policies")
    return given


def _trigger(flow: Flow, resolved: Resolved) -> Trigger | None:
    given = resolved.config.trigger
    if given is None:
        return None
    trigger = given if isinstance(given, Trigger) else parse_trigger(given)
    if trigger.is_bound:
        return trigger
    # Kept elsewhere, it has no time of creation: the earliest stored time is used instead.
    return trigger.bind(f"{flow.name}/{resolved.id}", from_ms(STORED_FROM_MS))


def as_schedule(resolved: Resolved, trigger: Trigger | None) -> Schedule:
    """Return a schedule that is kept elsewhere as a Schedule, for `authorize`."""
    config = resolved.config
    unknown = once(from_ms(STORED_FROM_MS))
    return Schedule(
        id=resolved.id,
        flow=resolved.flow,
        scope=resolved.scope,
        name=resolved.name,
        definition=Definition(
            trigger=unknown if trigger is None else trigger,
            action=config.action if isinstance(config.action, str) else config.action.name,
            input=None if callable(config.input) else config.input,
            hand_over="external",
            policies=config.policies,
        ),
        state="active",
        version=0,
        created_at_ms=STORED_FROM_MS,
        updated_at_ms=STORED_FROM_MS,
    )
