"""Writes, filters and events of schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from duly.model.index_rows import IndexRow
from duly.model.schedules import (
    DEFAULT_LIMITS,
    Definition,
    HandOver,
    Limits,
    Schedule,
    ScheduleId,
    ScheduleState,
)

MAX_WRITES = 10_000
"""Schedules that one call may write."""


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """The key of a schedule: (flow, scope, name)."""

    flow: str
    scope: str
    name: str


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """A filter for schedules of any owner; None: any value."""

    flow: str | None = None
    scope: str | None = None
    state: ScheduleState | None = None
    name_prefix: str = ""
    hand_over: HandOver | None = None


@dataclass(frozen=True, slots=True)
class ScheduleWrite:
    """A request of put_schedule()."""

    key: ScheduleKey
    id: ScheduleId
    """Used if the schedule is new; an existing one keeps its id."""
    definition: Definition
    limits: Limits = DEFAULT_LIMITS
    expected_version: int | None = None
    by: str = "system"
    """Author of the write, for schedule_events."""


@dataclass(frozen=True, slots=True)
class ScheduleWritten:
    """The write was applied: the schedule, and its row if it has a next time."""

    schedule: Schedule
    row: IndexRow | None
    created: bool


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """One event of a schedule; never changed."""

    schedule_id: ScheduleId
    kind: Literal["created", "changed", "paused", "resumed", "deleted", "finished", "quarantined"]
    at_ms: int
    by: str
    detail: dict[str, Any] = field(default_factory=dict)
    """The old timing if it changed; for `deleted`, also the key."""
    seq: int = field(default=0, compare=False, repr=False)
    """Increasing number, assigned by the store; 0 before that."""
