"""What people may say of a schedule when they make or change one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, get_type_hints

from duly.flows.collections.schema import unknown_field
from duly.model.schedules import HandOver, Policies, Schedule
from duly.triggers import Trigger

_USUAL = Policies()


class Named(Protocol):
    """An action, as far as a schedule needs to know it."""

    @property
    def name(self) -> str:
        """What the action is called: `flow.action`, or its name inside the flow."""


TriggerWords = Trigger | str | Mapping[str, Any]
"""A trigger, a cron expression, or the JSON object of a trigger."""


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """What create_many() is asked to make; create() takes the same, one by one."""

    name: str
    trigger: TriggerWords
    action: str | Named
    input: Any = None
    enabled: bool = True
    description: str = ""
    note: str = ""
    hand_over: HandOver = "jobs"
    policies: Policies = _USUAL
    max_runs: int | None = None
    interval_bounds_ms: tuple[int, int] | None = None
    delete_after_completion: bool = False


class ScheduleOptions(TypedDict, total=False):
    """What may be said of a schedule beside its name, trigger and action."""

    input: Any
    enabled: bool
    description: str
    note: str
    hand_over: HandOver
    policies: Policies
    max_runs: int | None
    interval_bounds_ms: tuple[int, int] | None
    delete_after_completion: bool


class ScheduleChanges(ScheduleOptions, total=False):
    """What may be changed of a schedule; what is not named stays."""

    trigger: TriggerWords
    action: str | Named


EnsureOutcome = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Ensured:
    """What ensure() found to do, and the schedule as it stands."""

    schedule: Schedule
    outcome: EnsureOutcome


def asked(
    name: str, trigger: TriggerWords, action: str | Named, options: ScheduleOptions
) -> NewSchedule:
    """What create() was asked for."""
    return NewSchedule(name, trigger, action, **known_words(options, ScheduleOptions))


def known_words(given: Mapping[str, Any], allowed: type) -> dict[str, Any]:
    """Refuse a keyword that no schedule has: a mistyped one must not be a silent default."""
    known = get_type_hints(allowed)
    for name in given:
        if name not in known:
            raise unknown_field("a schedule", name, known)
    return dict(given)
