"""Static schedules: declared by the application's code, in the system's scope.

Declarations are checked at import; reconcile() writes them to the store and deletes those that the
code no longer declares. Other flows, and schedules created at run time, are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, cast

import msgspec

from duly.errors import InvalidInput
from duly.flows.collections import Ensured, ScheduleCollection, ScheduleOptions
from duly.flows.collections.requests import TriggerWords, known_words
from duly.model.index import MAX_PAGE
from duly.model.retries import RetryPolicy
from duly.model.schedules import Definition, Delivery, HandOver, Misfire, Overlap, Policies
from duly.model.scopes import SYSTEM
from duly.triggers import Trigger, parse_trigger

BY = "static"
"""The requester of their changes in schedule_events."""


class StaticOptions(TypedDict, total=False):
    """The options of a static schedule; its policies are given one by one."""

    input: Any
    enabled: bool
    description: str
    hand_over: HandOver
    max_runs: int | None
    interval_bounds_ms: tuple[int, int] | None
    misfire: Misfire
    grace_ms: int
    overlap: Overlap
    delivery: Delivery
    priority: int
    retry: RetryPolicy
    timeout_ms: int
    pause_after_failures: int | None


class Scheduled(Protocol):
    """The part of an action that a schedule needs."""

    @property
    def name(self) -> str: ...
    @property
    def usual_input(self) -> object: ...
    def encode(self, value: object) -> str: ...


@dataclass(frozen=True, slots=True)
class StaticSchedule:
    """A schedule that the code declares."""

    name: str
    action: str
    """The action's name inside its flow."""
    trigger: Trigger
    options: ScheduleOptions

    @property
    def definition(self) -> Definition:
        """The declaration as a definition; its trigger is not bound."""
        return Definition(self.trigger, self.action, **self.options, origin="static")


@dataclass(frozen=True, slots=True)
class StaticReport:
    """The report of a reconciliation."""

    ensured: tuple[Ensured, ...] = ()
    deleted: tuple[str, ...] = ()
    """Names of schedules that the code no longer declares."""


def declare(
    name: str, trigger: TriggerWords, action: Scheduled, options: Mapping[str, Any]
) -> StaticSchedule:
    """Return the checked declaration; InvalidInput for options or an input that do not fit."""
    words = known_words(options, StaticOptions)
    policies = {each: words.pop(each) for each in Policies.__struct_fields__ if each in words}
    given = words.get("input", action.usual_input)
    try:
        fitting = msgspec.json.decode(action.encode(given))
    except InvalidInput as error:
        error.add_note(f"in static schedule {name!r}: pass input=, or give the parameter a default")
        raise
    rule = trigger if isinstance(trigger, Trigger) else parse_trigger(trigger)
    options = cast(ScheduleOptions, words | {"input": fitting, "policies": Policies(**policies)})
    declared = StaticSchedule(name, action.name.rpartition(".")[2], rule, options)
    # Built once to be checked as a whole.
    assert declared.definition.origin == "static"
    return declared


async def reconcile(
    collection: ScheduleCollection, declared: Iterable[StaticSchedule]
) -> StaticReport:
    """Make the static schedules of one flow match the code; repeating it is harmless."""
    scoped = collection.of(SYSTEM, by=BY, origin="static")
    ensured, kept = [], set()
    for each in declared:
        kept.add(each.name)
        found = await scoped.ensure(each.name, each.trigger, action=each.action, **each.options)
        ensured.append(found)
    deleted: list[str] = []
    after = ""
    while page := await scoped.list(after=after, limit=MAX_PAGE):
        after = page[-1].name
        for schedule in page:
            is_old = schedule.definition.origin == "static" and schedule.name not in kept
            if is_old and await scoped.delete(schedule.name):
                deleted.append(schedule.name)
    return StaticReport(tuple(ensured), tuple(deleted))
