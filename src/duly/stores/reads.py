"""Bounded reads for pages, metrics and questions about the ledger.

Each reads a bounded number of rows, however much is stored, and says where a count stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from duly.model.jobs import JobId, JobState
from duly.model.ledger import Occurrence
from duly.model.ledger_counts import Lateness, LedgerSummary, MissingSchedule, OccurrenceCounts
from duly.model.schedules import ScheduleId
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import (
    AuditEntry,
    Backlog,
    DueSummary,
    EndCount,
    IndexStretch,
    JobPage,
    PlannedFire,
    QueueCount,
    Upcoming,
    WorkspaceCount,
)


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


class MonitoringReads(Protocol):
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

    async def due_summary(self, most: int = 10_000) -> DueSummary:
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
