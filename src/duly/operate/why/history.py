"""History of a schedule: stretches of time with one rule and one state each, from events. Pure.

The input is the current schedule (None if deleted) and its events. Events are pruned: before the
oldest one kept, the schedule is assumed to have been as that event found it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from duly.errors import InvalidInput
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import Schedule
from duly.triggers import Every, Trigger, parse_trigger
from duly.triggers.instants import END_MS

StretchState = Literal["active", "paused", "finished", "quarantined", "deleted"]

MAX_COUNTED = 100_000
"""Limit of counting one by one; a count that reaches it means "at least"."""
_SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period in which nothing about a schedule's timing changed."""

    from_ms: int
    """Exclusive: a schedule written at an instant has its first time after it."""
    to_ms: int
    """Inclusive; END_MS for the current stretch."""
    trigger: Trigger | None
    """None: the rule of that period is no longer stored."""
    state: StretchState
    since: ScheduleEvent | None
    """Event that led to the state; None: it was so from the beginning."""
    is_external: bool = False
    """An outside scheduler fires it. Taken from the current schedule: events do not record it."""

    def holds(self, ms: int) -> bool:
        """Return whether an instant lies in the stretch."""
        return self.from_ms < ms <= self.to_ms


def stretches(schedule: Schedule | None, events: Sequence[ScheduleEvent]) -> list[Stretch]:
    """Return all stretches of a schedule in order, from its creation; empty: nothing is known."""
    edits = [event for event in events if event.kind != "created"]
    first = events[0].at_ms if events else 0
    begins = first if schedule is None else schedule.created_at_ms
    triggers = _triggers(schedule, edits)
    states = _states(schedule, edits)
    if schedule is None and not events:
        return []
    bounds = [begins, *(max(begins, event.at_ms) for event in edits), END_MS]
    since: ScheduleEvent | None = None
    is_external = schedule is not None and schedule.definition.hand_over == "external"
    made: list[Stretch] = []
    for place, (trigger, state) in enumerate(zip(triggers, states, strict=True)):
        if place and state != states[place - 1]:
            since = edits[place - 1]
        if bounds[place] < bounds[place + 1]:
            span = bounds[place], bounds[place + 1]
            made.append(Stretch(*span, trigger, state, since, is_external))
    return made


def _triggers(schedule: Schedule | None, edits: Sequence[ScheduleEvent]) -> list[Trigger | None]:
    """Return the rule before each event and after the last; an event stores the rule it ended."""
    trigger = None if schedule is None else schedule.definition.trigger
    found = [trigger]
    for event in reversed(edits):
        if "trigger" in event.detail:
            trigger = _parsed(event.detail["trigger"])
        found.append(trigger)
    return found[::-1]


def _parsed(stored: object) -> Trigger | None:
    try:
        return parse_trigger(stored)
    except InvalidInput:  # written by a newer release
        return None


def _states(schedule: Schedule | None, edits: Sequence[ScheduleEvent]) -> list[StretchState]:
    """Return the state before each event and after the last; the latter is the stored state."""
    turning = [event.kind for event in edits if event.kind in ("paused", "resumed")]
    is_paused_now = schedule is not None and schedule.state == "paused"
    began_paused = turning[0] == "resumed" if turning else is_paused_now
    state: StretchState = "paused" if began_paused else "active"
    found = [state]
    for event in edits:
        state = _after(state, event)
        found.append(state)
    if schedule is not None:
        found[-1] = schedule.state
    return found


def _after(state: StretchState, event: ScheduleEvent) -> StretchState:
    match event.kind:
        case "created" | "resumed":
            return "active"
        case "changed":
            # An edit reactivates a schedule that had ended.
            return "active" if state in ("finished", "quarantined") else state
        case "paused" | "finished" | "quarantined" | "deleted":
            return event.kind


def is_time(trigger: Trigger, ms: int) -> bool:
    """Return whether an instant is one of a trigger's nominal times."""
    return 0 < ms < END_MS and trigger.next_after_ms(ms - 1) == ms


def last_before(trigger: Trigger, ms: int) -> int | None:
    """Return the last nominal time before an instant, by doubling steps and bisection."""
    back_ms = _SECOND_MS
    while _next(trigger, ms - back_ms, ms) is None:
        if back_ms > ms:
            return None
        back_ms *= 2
    low, high = ms - back_ms, ms
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _next(trigger, middle, ms) is None else (middle, high)
    return _next(trigger, low, ms)


def _next(trigger: Trigger, after_ms: int, before_ms: int) -> int | None:
    found = trigger.next_after_ms(max(0, after_ms))
    return found if found is not None and found < before_ms else None


def count_times(trigger: Trigger, from_ms: int, to_ms: int) -> int:
    """Count the nominal times in [from_ms, to_ms), up to MAX_COUNTED one by one."""
    found = trigger.next_after_ms(max(0, from_ms - 1)) if from_ms < to_ms else None
    if isinstance(trigger, Every) and found is not None and found < to_ms:
        last_ms = to_ms - 1 if trigger.limits.end_ms is None else min(to_ms - 1, _end(trigger))
        return 1 + (last_ms - found) // trigger.interval_ms
    count = 0
    while found is not None and found < to_ms and count < MAX_COUNTED:
        count, found = count + 1, trigger.next_after_ms(found)
    return count


def _end(trigger: Trigger) -> int:
    return END_MS if trigger.limits.end_ms is None else trigger.limits.end_ms
