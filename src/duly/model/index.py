"""Values of the index: limits of claims, quarantined rows, health and repair reports."""

from __future__ import annotations

from dataclasses import dataclass

from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import (
    ScheduleId,
)

CLAIM_LIMIT = 100
MAX_CLAIM = 10_000
MAX_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that cannot be evaluated: not due until it is written again."""

    key: ScheduleKey
    schedule_id: ScheduleId
    nominal_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """The findings and repairs of reconcile()."""

    checked: int = 0
    added: int = 0
    """Rows created for schedules with a next time."""
    removed: int = 0
    """Rows deleted because their schedule has no next time or does not exist."""
    corrected: int = 0
    """Rows that differed from their schedule."""

    def __add__(self, other: ReconcileReport) -> ReconcileReport:
        return ReconcileReport(
            self.checked + other.checked,
            self.added + other.added,
            self.removed + other.removed,
            self.corrected + other.corrected,
        )


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """Health of the index: whether an idle scheduler is idle or broken."""

    active: int
    """Active schedules that Duly hands over itself; each needs an index row."""
    rows: int
    """Index rows that have a next time."""
    missing: int
    """Schedules that have a next time but no row."""
    quarantined: int
    due: int
    """Due rows for a planner."""
    oldest_due_ms: int | None
    is_whole: bool = True
    """False: `active`, `rows`, `missing` and `external` cover only the part counted so far."""
    external: int = 0
    """Active schedules of hand-over `external`, which need no index row."""

    posts_due: int = 0
    """Due rows for a tick to post."""
    oldest_post_ms: int | None = None
    is_due_capped: bool = False
    """The count of `due` and `posts_due` together stopped at a limit: there may be more."""
    is_quarantined_capped: bool = False
    """The count of `quarantined` stopped at a limit: there may be more."""

    @property
    def is_healthy(self) -> bool:
        """Return whether no row is missing or quarantined."""
        return self.missing == 0 and self.quarantined == 0
