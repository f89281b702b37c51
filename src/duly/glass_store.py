"""The port to a database, for the glass: what pages and metrics read, and who did what.

As in `store`: every verb is one step; times are integer milliseconds by the database's clock. No
read costs more than what it may look at, however much is stored: counts stop where they are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from duly.job_store import JobFilter
from duly.jobs import Job, JobId, JobState
from duly.occurrences import IndexRow
from duly.schedules import HandOver, ScheduleId

MAX_COUNT = 100_000
"""No count goes further than this."""
MAX_SAMPLE = 5_000
OLDEST = 100
"""Rows that glance() gives."""
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
class Glance:
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


class GlassStore(Protocol):
    """What Duly asks of a database for its pages."""

    async def count_states(self, most: int = 10_000) -> dict[JobState, int]:
        """Jobs by state, each counted up to `most`; states without jobs are left out.

        Of those that wait for their time, scheduled or retrying, `most` are looked at together.
        """

    async def search_jobs(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 100,
        look: int = 10_000,
    ) -> JobPage:
        """One page of jobs by id, newest first, before an id; out of about `look` jobs at most.

        A page may so hold fewer than `limit`, or none, and still say where to go on.
        """

    async def count_queues(self, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
        """Return queues by name in which jobs wait, run or are dead, and configured ones.

        Queued jobs, and later ones with a run time, are counted up to `most` in each queue. Of the
        others, the newest `most` of all queues are looked at.
        """

    async def count_backlog(self, most: int = 10_000) -> Backlog:
        """Count queued jobs up to `most`; of more, give what the database knows without counting.

        An estimate is never below `most`.
        """

    async def count_workspaces(
        self, queue: str, most: int = 1_000, limit: int = 100
    ) -> list[WorkspaceCount]:
        """Workspaces with queued jobs in a queue, by name."""

    async def count_ends(self, since_ms: int, most: int = 50_000) -> list[EndCount]:
        """Jobs ended since then by minute and state, the newest `most` of each state; sorted."""

    async def upcoming(self, until_ms: int, sample: int = 1_000, most: int = 10_000) -> Upcoming:
        """Rows with a run time before `until_ms`, by minute; and up to `sample` of them.

        Counted up to `most`; of more, about `most` are looked at and the minutes are an estimate.
        """

    async def next_planned(self, limit: int = 10, look: int = 1_000) -> list[PlannedFire]:
        """The first planned run of each schedule, earliest first, out of `look` waiting jobs."""

    async def check_index(self, after: str = "", limit: int = 5_000) -> IndexStretch:
        """Look at the next `limit` documents behind an id: which lack the row they should have.

        From "" on, until no id comes back, it has seen every schedule.
        """

    async def glance(self, most: int = 10_000) -> Glance:
        """Due and quarantined rows, counted up to `most`, and those due for longest."""

    async def check_writable(self) -> None:
        """Commit a write that changes nothing; BackendUnavailable where writes are refused."""

    async def oldest_snapshot_ms(self) -> int:
        """Return for how long the oldest open transaction has kept deleted rows from being removed.

        0 where there is none, or where an open transaction keeps nothing.
        """

    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        """Keep who did what; gives it back with its number and time."""

    async def list_audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """One page of entries, newest first, before a number; of one target, where named."""
