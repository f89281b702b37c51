"""Values of the monitoring pages: counts, samples, upcoming times and audit entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from duly.model.index_rows import IndexRow
from duly.model.jobs import Job, JobId, JobState
from duly.model.schedules import HandOver, ScheduleId

MAX_COUNT = 100_000
"""Upper bound of every count."""
MAX_SAMPLE = 5_000
OLDEST = 100
"""Rows that due_summary() returns."""
MAX_AUDIT_TEXT = 2_000
MINUTE_MS = 60_000
ENDS = (JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED)
"""States that count_ends() counts."""

SIGN_OUT = "sign_out"
"""The action of an audit entry that ends a session; its target is the session."""
MAX_SESSION_S = 90 * 86_400
"""Longest duration of a session."""

AuditOutcome = Literal["done", "refused"]


QueuePlace = Literal["queued", "later", "processing", "dead"]
"""Groups in which the jobs of a queue are counted."""


class QueueCount(NamedTuple):
    """Job counts of a queue, each at most the requested limit."""

    queue: str
    queued: int
    later: int
    """Scheduled or retrying."""
    processing: int
    dead: int
    first_run_at_ms: int | None
    """Run time of the next job."""
    capped: tuple[QueuePlace, ...] = ()
    """Counts that stopped at the requested limit: there may be more."""


class Backlog(NamedTuple):
    """The number of queued jobs over all queues."""

    jobs: int
    is_estimate: bool
    """More than were counted; the number comes from database statistics."""


class WorkspaceCount(NamedTuple):
    """Queued jobs of one workspace in one queue."""

    workspace: str
    queued: int
    first_run_at_ms: int | None


class EndCount(NamedTuple):
    """The number of jobs that ended in one minute."""

    minute_ms: int
    """Start of the minute."""
    state: JobState
    jobs: int


class JobPage(NamedTuple):
    """A page of jobs, newest first."""

    jobs: Sequence[Job]
    next_before: JobId | None
    """Start of the next page; None: last page."""


class IndexStretch(NamedTuple):
    """Index check of one batch of schedules."""

    active: int
    """Active schedules that need an index row."""
    missing: int
    """Of these, those without an index row."""
    last_id: str | None
    """Start of the next batch; None: this was the last."""
    external: int = 0
    """Active schedules of hand-over `external`, which need no index row."""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Index rows with a run time before an instant."""

    now_ms: int
    minutes: Sequence[tuple[int, int]]
    """(start of a minute, rows with a next run time in it), ascending; includes overdue rows."""
    sample: Sequence[IndexRow]
    """All rows, or a sample."""
    is_estimate: bool = False
    """The minutes are extrapolated from a part of the rows; there are too many to count."""

    @property
    def rows(self) -> int:
        """Return the number of rows, possibly estimated."""
        return sum(rows for _, rows in self.minutes)

    @property
    def share(self) -> float:
        """Return how many rows each row of the sample represents."""
        return self.rows / len(self.sample) if self.sample else 1.0


class PlannedFire(NamedTuple):
    """The first planned run of a schedule that is still to come."""

    schedule_id: ScheduleId
    run_at_ms: int


class DueRows(NamedTuple):
    """Due rows of one hand-over."""

    rows: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class DueSummary:
    """A summary of the index that is cheap at any size."""

    now_ms: int
    has_active: bool
    """A schedule is active. Checked only if there are no rows; True otherwise."""
    has_rows: bool
    due: int
    """Due rows for a planner or a tick; not those of claim_due() callers."""
    quarantined: int
    oldest: Sequence[IndexRow]
    """Of these, the rows that have been due longest."""
    waiting: Mapping[HandOver, DueRows] = field(default_factory=dict)
    """Due rows by hand-over."""
    is_due_capped: bool = False
    """The count of due rows stopped at the requested limit: there may be more."""
    is_quarantined_capped: bool = False

    @property
    def is_silent(self) -> bool:
        """Return whether schedules are active but the index has no rows."""
        return self.has_active and not self.has_rows


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One audit entry: actor, action and target; never changed."""

    by: str
    action: str
    """`job.retry`, `schedule.pause`, `sign_in`."""
    target: str
    """`job:<id>`, `schedule:<id>`, `queue:<name>`; empty: no target."""
    outcome: AuditOutcome = "done"
    detail: str = ""
    seq: int = 0
    at_ms: int = 0
    """`seq` and `at_ms` are set by the store; passed values are ignored."""
