"""Ledger statistics: outcomes, lateness, and schedules that miss their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedules import ScheduleId

MAX_SUMMARY = 100_000
"""Newest ledger rows that one summary counts."""
MISSES_LOOK = 10_000
"""Newest missed and skipped rows that find_missing() reads."""
MISSES_MS = 86_400_000
"""How far back find_missing() looks."""
MAX_CHANGES = 100_000
"""Rows of counts that one read sums."""
MAX_LATENESS = 10_000
"""Newest occurrences whose lateness one summary lists."""


class LedgerCount(NamedTuple):
    """The number of nominal times of a window in one state."""

    state: OccurrenceState
    reason: str | None
    """RUN_NOW or PAUSED; None: any other reason."""
    times: int


class Lateness(NamedTuple):
    """The delay between an occurrence's run time and its start."""

    fired_at_ms: int
    late_ms: int


class OutcomeCount(NamedTuple):
    """The number of nominal times of a flow's schedules with one outcome."""

    flow: str
    outcome: str
    """A ledger state, or `paused`: missed during a pause."""
    times: int


@dataclass(frozen=True, slots=True)
class OccurrenceCounts:
    """Outcome counts of the whole ledger."""

    counts: Sequence[OutcomeCount]
    """By flow and outcome; zero counts are omitted."""
    is_whole: bool = True
    """False: one read could not sum all rows."""


class MissingSchedule(NamedTuple):
    """A schedule whose recent times mostly did not run."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    looked_at: int
    """Number of its last decided ledger rows, at most RECENT_TIMES."""
    missed: int
    skipped: int


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """Counts of a window of one schedule's ledger."""

    from_ms: int
    """Start of the counted rows: later than requested if there are more than MAX_SUMMARY."""
    counts: tuple[LedgerCount, ...]
    """Of rows entirely in the window, by state and reason; zero counts are omitted."""
    edges: tuple[Occurrence, ...]
    """Runs of times that cross an end of the window; the trigger decides how many are in it."""
    lateness: tuple[Lateness, ...]
    """Of started occurrences, newest nominal time first; at most MAX_LATENESS."""
