"""Limits on the number of schedules per owner.

A finished schedule does not count. A write is checked if it creates a schedule or makes a finished
or paused one run again: an owner at the limit can still pause and edit text, but cannot exceed it
by finishing, editing and resuming schedules.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from duly.model.documents import Refused
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, Schedule, ScheduleState
from duly.model.scopes import SYSTEM

COUNTED: frozenset[ScheduleState] = frozenset({"active", "paused", "quarantined"})


@dataclass(frozen=True, slots=True)
class Holdings:
    """Numbers of counted schedules per owner, in total and per flow."""

    scopes: Counter[str] = field(default_factory=Counter)
    flows: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (scope, flow); counted only if a write has a limit per flow."""

    def add(self, key: ScheduleKey, count: int) -> None:
        """Add the change of a write, for later writes of the same batch."""
        self.scopes[key.scope] += count
        self.flows[key.scope, key.flow] += count


def is_counted(schedule: Schedule | None) -> bool:
    """Return whether a schedule counts towards its owner's limits."""
    return schedule is not None and schedule.state in COUNTED


def may_need_room(write: ScheduleWrite, before: Schedule | None) -> bool:
    """Return whether a write may have to be checked against the limits, which needs a count."""
    if write.key.scope == str(SYSTEM):
        return False
    if before is None:
        return True
    is_at_rest = before.state == "finished" or not before.definition.enabled
    return write.definition.enabled and is_at_rest


def refuse_full(
    write: ScheduleWrite, before: Schedule | None, holdings: Holdings, *, is_retimed: bool = True
) -> Refused | None:
    """Return the refusal of a write that would give its owner too many schedules, or None.

    `is_retimed`: the write changes when the schedule fires; other edits are not checked.
    """
    if not is_retimed or not may_need_room(write, before):
        return None
    key, limits, own = write.key, write.limits, is_counted(before)
    in_scope = holdings.scopes[key.scope] - own
    if in_scope >= limits.schedules:
        return Refused("full", in_scope)
    in_flow = holdings.flows[key.scope, key.flow] - own
    if limits.schedules_per_flow is not None and in_flow >= limits.schedules_per_flow:
        return Refused("full", in_flow, limit="schedules_per_flow")
    return None


def timing(definition: Definition) -> tuple[object, ...]:
    """Return the fields that decide when a schedule fires; other edits keep its next time."""
    return definition.trigger, definition.enabled, definition.hand_over, definition.max_runs
