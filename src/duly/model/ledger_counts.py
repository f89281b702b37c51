"""Counts of the ledger: outcomes, lateness, and schedules that miss their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedules import ScheduleId

MAX_SUMMARY = 100_000
"""Ledger rows that one summary counts, the newest."""
MISSES_LOOK = 10_000
"""Missed and skipped rows that find_missing() looks at, the newest."""
MISSES_MS = 86_400_000
"""How far back it looks."""
MAX_CHANGES = 100_000
"""Rows of counts that one read adds up."""
MAX_LATENESS = 10_000
"""Occurrences whose lateness one answer gives, the newest."""


class LedgerCount(NamedTuple):
    """How many nominal times of a window are in a state."""

    state: OccurrenceState
    reason: str | None
    """RUN_NOW or PAUSED, where that is why; None for every other reason."""
    times: int


class Lateness(NamedTuple):
    """How long after its run time an occurrence began."""

    fired_at_ms: int
    late_ms: int


class OutcomeCount(NamedTuple):
    """How many nominal times of a flow's schedules have an outcome."""

    flow: str
    outcome: str
    """A ledger state, or `paused`: missed during a pause."""
    times: int


@dataclass(frozen=True, slots=True)
class OccurrenceCounts:
    """The whole ledger, counted."""

    counts: Sequence[OutcomeCount]
    """By flow and outcome; none of nothing."""
    is_whole: bool = True
    """False: there was more to add up than one read may look at."""


class MissingSchedule(NamedTuple):
    """A schedule most of whose last times did not run."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    looked_at: int
    """Its last decided ledger rows, RECENT_TIMES at most."""
    missed: int
    skipped: int


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """A window of one schedule's ledger, counted."""

    from_ms: int
    """Where the counting began: later than asked where there are more than MAX_SUMMARY rows."""
    counts: tuple[LedgerCount, ...]
    """Of rows that lie whole in the window, by state and reason; none of nothing."""
    edges: tuple[Occurrence, ...]
    """Runs of times that reach over an end of the window: the trigger says how many lie in it."""
    lateness: tuple[Lateness, ...]
    """Of those that began, the newest nominal time first; at most MAX_LATENESS."""
