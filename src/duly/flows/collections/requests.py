"""Requests to create or change a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, get_type_hints

from duly.flows.collections.schema import unknown_field
from duly.model.schedules import HandOver, Policies, Schedule
from duly.triggers import Trigger

_USUAL = Policies()


class Named(Protocol):
    """The part of an action that a schedule needs."""

    @property
    def name(self) -> str:
        """The name of the action: `flow.action`, or its name inside the flow."""


TriggerWords = Trigger | str | Mapping[str, Any]
"""A trigger, a cron expression, or the JSON object of a trigger."""


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule for create_many(); create() takes the same fields as arguments."""

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
    """The options of a schedule besides name, trigger and action."""

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
    """The changes of a schedule; fields that are not named keep their values."""

    trigger: TriggerWords
    action: str | Named


EnsureOutcome = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Ensured:
    """The outcome of ensure(), and the schedule as it is now."""

    schedule: Schedule
    outcome: EnsureOutcome


def asked(
    name: str, trigger: TriggerWords, action: str | Named, options: ScheduleOptions
) -> NewSchedule:
    """Return the arguments of create() as a NewSchedule; refuse unknown options."""
    return NewSchedule(name, trigger, action, **known_words(options, ScheduleOptions))


def known_words(given: Mapping[str, Any], allowed: type) -> dict[str, Any]:
    """Return the keywords; refuse unknown ones, so that a typo is not a silent default."""
    known = get_type_hints(allowed)
    for name in given:
        if name not in known:
            raise unknown_field("a schedule", name, known)
    return dict(given)
