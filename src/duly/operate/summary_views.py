"""Views of the whole system: counts, completions per minute, next fires; aware datetimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from duly.model.index_rows import IndexRow, trigger_of
from duly.model.jobs import JobState
from duly.model.ledger_counts import Lateness
from duly.model.schedules import Schedule
from duly.model.summaries import ENDS, MINUTE_MS, Backlog, DueSummary, EndCount
from duly.operate.unserved import Unserved
from duly.triggers.instants import from_ms


@dataclass(frozen=True, slots=True)
class NextFire:
    """A schedule that fires soon, with its next run time."""

    schedule_id: str
    flow: str
    scope: str
    name: str
    words: str
    run_at: datetime


@dataclass(frozen=True, slots=True)
class Minute:
    """Jobs that ended in one minute, by final state."""

    at: datetime
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """All jobs that ended in this minute."""
        return self.succeeded + self.dead + self.cancelled


@dataclass(frozen=True, slots=True)
class Overview:
    """Summary of the whole system; counts stop at `most`."""

    now: datetime
    most: int
    states: Mapping[JobState, int]
    due: int
    oldest_due: datetime | None
    quarantined: int
    is_silent: bool
    minutes: Sequence[Minute]
    """The last hour, oldest first."""
    lateness: Sequence[Lateness]
    """Of recent occurrences, newest first."""
    workers: int
    slots: int
    running: int
    next_fires: Sequence[NextFire]
    due_summary: DueSummary
    backlog: Backlog
    unserved: Sequence[Unserved] = ()
    """Waiting jobs that no live worker would claim, longest waiting first."""

    @property
    def lateness_ms(self) -> list[int]:
        """Lateness of recent occurrences, ascending."""
        return sorted(max(0, each.late_ms) for each in self.lateness)

    @property
    def ended(self) -> int:
        """Jobs that ended within the hour."""
        return sum(each.ended for each in self.minutes)

    @property
    def died(self) -> int:
        """Jobs that died within the hour."""
        return sum(each.dead for each in self.minutes)

    def late_ms(self, share: float) -> int | None:
        """Return the lateness below which a share of recent occurrences lies; None: no data."""
        rising = self.lateness_ms
        return rising[min(len(rising) - 1, int(share * len(rising)))] if rising else None


def view_next(row: IndexRow) -> NextFire:
    """Return the view of an index row that will be claimed soon."""
    words = trigger_of(row.trigger).words
    at = from_ms(row.run_at_ms)
    return NextFire(row.schedule_id, row.flow, row.scope, row.name, words, at)


def view_planned(schedule: Schedule, run_at_ms: int) -> NextFire:
    """Return the view of a schedule whose next job already exists."""
    words, at = schedule.definition.trigger.words, from_ms(run_at_ms)
    scope = str(schedule.scope)
    return NextFire(schedule.id, schedule.flow, scope, schedule.name, words, at)


def minutes_of(ends: Sequence[EndCount], now_ms: int, count: int = 60) -> list[Minute]:
    """Return completions by minute, including minutes without any."""
    last_ms = now_ms // MINUTE_MS * MINUTE_MS
    found = {(each.minute_ms, each.state): each.jobs for each in ends}
    return [
        Minute(from_ms(ms), *(found.get((ms, state), 0) for state in ENDS))
        for ms in range(last_ms - (count - 1) * MINUTE_MS, last_ms + 1, MINUTE_MS)
    ]
