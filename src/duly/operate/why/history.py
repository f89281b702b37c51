"""Station 8: what a schedule was at each time, told from its events. Pure.

Takes a schedule as it stands, or nothing where it is deleted, and its events; gives stretches of
time in each of which one rule and one state held. Events are kept for a while only: what they no
longer say is taken to have been as the oldest of them found it.
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
"""Times that are counted one by one; a count that reaches it means "at least"."""
_SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which nothing about a schedule's timing changed."""

    from_ms: int
    """Not included: what is written at an instant has its first time after it."""
    to_ms: int
    """Included; END_MS for the one that lasts."""
    trigger: Trigger | None
    """None: the rule of that time is not stored any more."""
    state: StretchState
    since: ScheduleEvent | None
    """What brought the state about; None: it was so from the beginning."""
    is_external: bool = False
    """An outside scheduler fires it. Events do not tell: as the schedule is now."""

    def holds(self, ms: int) -> bool:
        """Whether an instant lies in it."""
        return self.from_ms < ms <= self.to_ms


def stretches(schedule: Schedule | None, events: Sequence[ScheduleEvent]) -> list[Stretch]:
    """The whole life of a schedule in order, from its creation on; empty: nothing is known."""
    told = [event for event in events if event.kind != "created"]
    first = events[0].at_ms if events else 0
    begins = first if schedule is None else schedule.created_at_ms
    triggers = _triggers(schedule, told)
    states = _states(schedule, told)
    if schedule is None and not events:
        return []
    marks = [begins, *(max(begins, event.at_ms) for event in told), END_MS]
    since: ScheduleEvent | None = None
    is_external = schedule is not None and schedule.definition.hand_over == "external"
    made: list[Stretch] = []
    for place, (trigger, state) in enumerate(zip(triggers, states, strict=True)):
        if place and state != states[place - 1]:
            since = told[place - 1]
        if marks[place] < marks[place + 1]:
            span = marks[place], marks[place + 1]
            made.append(Stretch(*span, trigger, state, since, is_external))
    return made


def _triggers(schedule: Schedule | None, told: Sequence[ScheduleEvent]) -> list[Trigger | None]:
    """The rule before each event, and after the last: an event keeps the rule it ended."""
    trigger = None if schedule is None else schedule.definition.trigger
    found = [trigger]
    for event in reversed(told):
        if "trigger" in event.detail:
            trigger = _parsed(event.detail["trigger"])
        found.append(trigger)
    return found[::-1]


def _parsed(stored: object) -> Trigger | None:
    try:
        return parse_trigger(stored)
    except InvalidInput:  # of a release that knew more
        return None


def _states(schedule: Schedule | None, told: Sequence[ScheduleEvent]) -> list[StretchState]:
    """The state before each event, and after the last; that one is what is stored."""
    turning = [event.kind for event in told if event.kind in ("paused", "resumed")]
    is_paused_now = schedule is not None and schedule.state == "paused"
    began_paused = turning[0] == "resumed" if turning else is_paused_now
    state: StretchState = "paused" if began_paused else "active"
    found = [state]
    for event in told:
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
            # An edit gives a schedule that had ended another beginning.
            return "active" if state in ("finished", "quarantined") else state
        case "paused" | "finished" | "quarantined" | "deleted":
            return event.kind


def is_time(trigger: Trigger, ms: int) -> bool:
    """Whether an instant is one of a trigger's nominal times."""
    return 0 < ms < END_MS and trigger.next_after_ms(ms - 1) == ms


def last_before(trigger: Trigger, ms: int) -> int | None:
    """The last nominal time before an instant: look back far enough, then halve the distance."""
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
    """How many nominal times lie from one instant to before another, counted to MAX_COUNTED."""
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
