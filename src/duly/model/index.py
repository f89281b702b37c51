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
    """A row that cannot be evaluated: out of the due range until it is written anew."""

    key: ScheduleKey
    schedule_id: ScheduleId
    nominal_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """What reconcile() found and mended."""

    checked: int = 0
    added: int = 0
    """Schedules with a next time that had no row."""
    removed: int = 0
    """Rows whose schedule has no next time, or does not exist."""
    corrected: int = 0
    """Rows that said something else than their schedule."""

    def __add__(self, other: ReconcileReport) -> ReconcileReport:
        return ReconcileReport(
            self.checked + other.checked,
            self.added + other.added,
            self.removed + other.removed,
            self.corrected + other.corrected,
        )


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """Facts that tell a silent scheduler from an idle one."""

    active: int
    """Active schedules that Duly hands over itself, so that each needs an index row."""
    rows: int
    """Index rows that have a next time."""
    missing: int
    """Schedules that have a next time but no row."""
    quarantined: int
    due: int
    """Rows whose run time has come and that a planner is to take."""
    oldest_due_ms: int | None
    is_whole: bool = True
    """Everything was counted; else `active`, `rows`, `missing` and `external` are of what was seen
    so far."""
    external: int = 0
    """Active schedules of hand-over `external`, which need no index row."""

    posts_due: int = 0
    """Rows whose run time has come and that a tick is to post."""
    oldest_post_ms: int | None = None
    is_due_capped: bool = False
    """`due` and `posts_due` were counted up to a number together: there may be more."""
    is_quarantined_capped: bool = False
    """`quarantined` was counted up to a number: there may be more."""

    @property
    def is_healthy(self) -> bool:
        """Nothing that should fire is out of the index."""
        return self.missing == 0 and self.quarantined == 0
