"""The port to a database, for questions to the ledger: what became of a time, and of many.

As in `store`: times are integer milliseconds by the database's clock. Every answer is bounded, and
says where it was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from duly.jobs import JobId
from duly.ledger import Occurrence, OccurrenceState
from duly.schedules import ScheduleId

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


class LedgerStore(Protocol):
    """What Duly asks of a database about the past."""

    async def occurrence_at(self, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
        """The ledger row that covers a nominal time: its own, or a run of times around it."""

    async def occurrences_of_jobs(self, job_ids: Sequence[JobId]) -> dict[JobId, Occurrence]:
        """The occurrences that jobs were made for; those that no schedule made have none."""

    async def ledger_summary(
        self, schedule_id: ScheduleId, from_ms: int, to_ms: int
    ) -> LedgerSummary:
        """Count what became of the times from one instant to before another."""

    async def count_occurrences(self) -> OccurrenceCounts:
        """Count the times of the whole ledger by flow and outcome.

        The counts change in the transaction that changes the ledger, so at any time they are what
        a count of all its rows would give. The cost is the number of flows, not of rows.
        """

    async def find_missing(self, limit: int = 50) -> list[MissingSchedule]:
        """Return schedules with a next time that keep missing or skipping, by id.

        Looked at are schedules with at least three missed or skipped rows among the newest 10,000
        of the last 24 hours, the `limit` that have most of them. A pause is no miss.
        """

    async def recent_lateness(self, limit: int = 1_000) -> list[Lateness]:
        """How late schedules' jobs began, of the jobs that ended last, newest first.

        Looks at so many jobs that succeeded and so many that are dead; jobs that no schedule made
        count among them, so the answer may be shorter.
        """
