"""Bounded reads of the port: monitoring, metrics and the ledger.

Each reads a bounded number of rows, however much is stored, and reports where a count stopped.
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
    """Verbs of a database that read the ledger."""

    async def occurrence_at(self, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
        """Return the ledger row that covers a nominal time: its own, or a range including it."""

    async def occurrences_of_jobs(self, job_ids: Sequence[JobId]) -> dict[JobId, Occurrence]:
        """Return the occurrences of jobs by job id; jobs without a schedule have none."""

    async def ledger_summary(
        self, schedule_id: ScheduleId, from_ms: int, to_ms: int
    ) -> LedgerSummary:
        """Count the outcomes of nominal times from `from_ms` to before `to_ms`."""

    async def count_occurrences(self) -> OccurrenceCounts:
        """Count the nominal times of the whole ledger by flow and outcome.

        The counts change in the same transaction as the ledger, so they always equal a count of
        all its rows. The cost grows with the number of flows, not of rows.
        """

    async def find_missing(self, limit: int = 50) -> list[MissingSchedule]:
        """Return schedules with a next time that keep missing or skipping runs, by id.

        Candidates have at least three missed or skipped rows among the newest 10,000 of the last
        24 hours; the `limit` with the most are checked. Times missed by a pause do not count.
        """

    async def recent_lateness(self, limit: int = 1_000) -> list[Lateness]:
        """Return how late scheduled jobs began, among the jobs that ended last, newest first.

        Reads up to `limit` succeeded and `limit` dead jobs; jobs without a schedule are among
        them, so the answer may be shorter.
        """


class MonitoringReads(Protocol):
    """Verbs of a database for monitoring."""

    async def count_states(self, most: int = 10_000) -> dict[JobState, int]:
        """Count jobs by state, each up to `most`; states without jobs are left out.

        Of scheduled and retrying jobs, `most` are counted together.
        """

    async def search_jobs(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 100,
        look: int = 10_000,
    ) -> JobPage:
        """Return one page of jobs by id, newest first, before an id; read at most about `look`.

        A page may therefore hold fewer than `limit` jobs, or none, and still say where to continue.
        """

    async def count_queues(self, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
        """Count the jobs of queues by name; include configured queues without jobs.

        Queued, scheduled and retrying jobs are counted up to `most` per queue. Of running and dead
        jobs, the newest `most` of all queues together are read.
        """

    async def count_backlog(self, most: int = 10_000) -> Backlog:
        """Count queued jobs up to `most`; above that, return the database's own estimate.

        An estimate is never below `most`.
        """

    async def count_workspaces(
        self, queue: str, most: int = 1_000, limit: int = 100
    ) -> list[WorkspaceCount]:
        """Return the workspaces with queued jobs in a queue, by name, each counted up to `most`."""

    async def count_ends(self, since_ms: int, most: int = 50_000) -> list[EndCount]:
        """Count jobs ended since an instant, by minute and state; the newest `most` per state."""

    async def upcoming(self, until_ms: int, sample: int = 1_000, most: int = 10_000) -> Upcoming:
        """Count rows with a run time before `until_ms` by minute; return up to `sample` of them.

        Exact up to `most` rows; above that, about `most` are read and the counts are an estimate.
        """

    async def next_planned(self, limit: int = 10, look: int = 1_000) -> list[PlannedFire]:
        """Return the first planned run of each schedule, earliest first; read `look` jobs."""

    async def check_index(self, after: str = "", limit: int = 5_000) -> IndexStretch:
        """Check the next `limit` schedules after an id for missing index rows.

        Called from "" on until no id is returned, it checks every schedule.
        """

    async def due_summary(self, most: int = 10_000) -> DueSummary:
        """Count due and quarantined rows up to `most`; return the ones due for longest."""

    async def check_writable(self) -> None:
        """Commit a write that changes nothing; raise BackendUnavailable if writes are refused."""

    async def oldest_snapshot_ms(self) -> int:
        """Return how long the oldest open transaction has kept deleted rows from being removed.

        0 if there is none, or if open transactions do not keep deleted rows.
        """

    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        """Store an audit entry; return it with its number and time."""

    async def list_audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return one page of audit entries, newest first, before a number; of one target or all."""
