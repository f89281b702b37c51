"""Values of the monitoring pages: counts, samples, upcoming times and the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from duly.model.index_rows import IndexRow
from duly.model.jobs import Job, JobId, JobState
from duly.model.schedules import HandOver, ScheduleId

MAX_COUNT = 100_000
"""No count goes further than this."""
MAX_SAMPLE = 5_000
OLDEST = 100
"""Rows that due_summary() gives."""
MAX_AUDIT_TEXT = 2_000
MINUTE_MS = 60_000
ENDS = (JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED)
"""States that count_ends() speaks of."""

SIGN_OUT = "sign_out"
"""The action of an audit entry that ends a session; its target is the session."""
MAX_SESSION_S = 90 * 86_400
"""The longest that a session may last."""

AuditOutcome = Literal["done", "refused"]


QueuePlace = Literal["queued", "later", "processing", "dead"]
"""What the jobs of a queue are counted by."""


class QueueCount(NamedTuple):
    """What is in a queue; no number is above the one that was asked for."""

    queue: str
    queued: int
    later: int
    """Scheduled or retrying."""
    processing: int
    dead: int
    first_run_at_ms: int | None
    """Run time of the job that is next in line."""
    capped: tuple[QueuePlace, ...] = ()
    """Counts that stopped at the number asked for: there may be more."""


class Backlog(NamedTuple):
    """How many jobs are queued, over all queues."""

    jobs: int
    is_estimate: bool
    """There are more than were counted; the number is the database's own statistics."""


class WorkspaceCount(NamedTuple):
    """What waits in one queue for one workspace."""

    workspace: str
    queued: int
    first_run_at_ms: int | None


class EndCount(NamedTuple):
    """How many jobs ended in one minute."""

    minute_ms: int
    """When the minute began."""
    state: JobState
    jobs: int


class JobPage(NamedTuple):
    """Some jobs, newest first."""

    jobs: Sequence[Job]
    next_before: JobId | None
    """Where the next page begins; None: there is none."""


class IndexStretch(NamedTuple):
    """What a look at some documents found."""

    active: int
    """Active schedules among them that need an index row."""
    missing: int
    """Of these, those without an index row."""
    last_id: str | None
    """Where the next look begins; None: these were the last."""
    external: int = 0
    """Active schedules of hand-over `external`, which need no index row."""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Index rows whose run time comes before an instant."""

    now_ms: int
    minutes: Sequence[tuple[int, int]]
    """(start of a minute, rows whose next run time is in it), rising; overdue ones included."""
    sample: Sequence[IndexRow]
    """All of them, or some that stand for all."""
    is_estimate: bool = False
    """The minutes follow from a part of the rows; there are too many to count."""

    @property
    def rows(self) -> int:
        """How many there are, or about how many."""
        return sum(rows for _, rows in self.minutes)

    @property
    def share(self) -> float:
        """How many rows each of the sample stands for."""
        return self.rows / len(self.sample) if self.sample else 1.0


class PlannedFire(NamedTuple):
    """The first run of a schedule that is planned and has not come."""

    schedule_id: ScheduleId
    run_at_ms: int


class DueRows(NamedTuple):
    """Due rows of one hand-over."""

    rows: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class DueSummary:
    """What can be known of the index at once, however large it is."""

    now_ms: int
    has_active: bool
    """Some schedule is active. Looked for only where there are no rows; True otherwise."""
    has_rows: bool
    due: int
    """Rows that a planner or a tick is to take; those of callers are theirs to claim."""
    quarantined: int
    oldest: Sequence[IndexRow]
    """Rows of these that have been due for longest."""
    waiting: Mapping[HandOver, DueRows] = field(default_factory=dict)
    """The same by hand-over."""
    is_due_capped: bool = False
    """The count of due rows stopped at the number asked for: there may be more."""
    is_quarantined_capped: bool = False

    @property
    def is_silent(self) -> bool:
        """Schedules should fire, and nothing is there that could make them."""
        return self.has_active and not self.has_rows


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to what: appended, never changed."""

    by: str
    action: str
    """`job.retry`, `schedule.pause`, `sign_in`."""
    target: str
    """`job:<id>`, `schedule:<id>`, `queue:<name>`; empty: nothing in particular."""
    outcome: AuditOutcome = "done"
    detail: str = ""
    seq: int = 0
    at_ms: int = 0
    """Number and time are the store's, whatever was passed in."""
