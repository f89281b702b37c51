"""Writes, filters and recorded facts of schedules."""

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
    """Which schedules to search for, whoever owns them; None: any."""

    flow: str | None = None
    scope: str | None = None
    state: ScheduleState | None = None
    name_prefix: str = ""
    hand_over: HandOver | None = None


@dataclass(frozen=True, slots=True)
class ScheduleWrite:
    """What put_schedule() is asked to store."""

    key: ScheduleKey
    id: ScheduleId
    """Taken when the schedule is new; an existing one keeps its own."""
    definition: Definition
    limits: Limits = DEFAULT_LIMITS
    expected_version: int | None = None
    by: str = "system"
    """Who asked, for schedule_events."""


@dataclass(frozen=True, slots=True)
class ScheduleWritten:
    """The write happened: the schedule as it now stands, and its row if it has a next time."""

    schedule: Schedule
    row: IndexRow | None
    created: bool


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """One fact about a schedule: appended, never changed."""

    schedule_id: ScheduleId
    kind: Literal["created", "changed", "paused", "resumed", "deleted", "finished", "quarantined"]
    at_ms: int
    by: str
    detail: dict[str, Any] = field(default_factory=dict)
    """The old timing, where it changed; for `deleted`, also the key."""
    seq: int = field(default=0, compare=False, repr=False)
    """Given by the store, rising; 0 before that."""
