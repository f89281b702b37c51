"""Read verbs of the memory store: searches and ledger queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from duly.model.index_rows import IndexRow
from duly.model.jobs import JobId
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.ledger_counts import Lateness, LedgerSummary, MissingSchedule, OccurrenceCounts
from duly.model.locks import Lock
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Schedule, ScheduleId
from duly.stores.memory.reads import ledger, ledger_questions, locks, schedule_searches
from duly.stores.memory.verbs.jobs import JobVerbs


class ReadVerbs(JobVerbs):
    """Every verb of LedgerStore, and searches of locks, schedules, rows and occurrences."""

    async def list_locks(
        self, name: str | None = None, *, after: str = "", limit: int = 100
    ) -> list[Lock]:
        """Return one page of held locks by name, after a name; or the lock `name`, if held."""
        with self._transaction() as (tables, now_ms):
            return locks.page(tables, now_ms, name, after, limit)

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        """Return one page of schedules of all scopes by flow, name and scope, after a key."""
        with self._transaction() as (tables, _):
            return schedule_searches.search(tables, which, after, limit)

    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        """Return the index rows of the schedules that have a next time, by id."""
        with self._transaction() as (tables, _):
            return schedule_searches.find_rows(tables, schedule_ids)

    async def list_occurrences(
        self,
        schedule_id: ScheduleId,
        *,
        before_ms: int | None = None,
        since_ms: int | None = None,
        states: Collection[OccurrenceState] | None = None,
        limit: int = 100,
    ) -> list[Occurrence]:
        """Return one page of a schedule's ledger by nominal time, newest first."""
        with self._transaction() as (tables, _):
            return ledger.page(
                tables,
                schedule_id,
                before_ms=before_ms,
                since_ms=since_ms,
                states=states,
                limit=limit,
            )

    async def occurrence_at(self, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
        """Return the ledger row that covers a nominal time."""
        with self._transaction() as (tables, _):
            return ledger_questions.covering(tables, schedule_id, nominal_ms)

    async def occurrences_of_jobs(self, job_ids: Sequence[JobId]) -> dict[JobId, Occurrence]:
        """Return the occurrences of jobs, by job id."""
        with self._transaction() as (tables, _):
            rows = (entry.occurrence for entry in tables.ledger.values())
            wanted = set(job_ids)
            return {row.job_id: row for row in rows if row.job_id in wanted and row.job_id}

    async def ledger_summary(
        self, schedule_id: ScheduleId, from_ms: int, to_ms: int
    ) -> LedgerSummary:
        """Count the outcomes of nominal times from `from_ms` to before `to_ms`."""
        with self._transaction() as (tables, _):
            return ledger_questions.summary(tables, schedule_id, from_ms, to_ms)

    async def count_occurrences(self) -> OccurrenceCounts:
        """Count the nominal times of the whole ledger by flow and outcome."""
        with self._transaction() as (tables, _):
            return ledger_questions.count_occurrences(tables)

    async def find_missing(self, limit: int = 50) -> list[MissingSchedule]:
        """Return schedules with a next time that keep missing or skipping runs, by id."""
        with self._transaction() as (tables, now_ms):
            return ledger_questions.find_missing(tables, now_ms, limit)

    async def recent_lateness(self, limit: int = 1_000) -> list[Lateness]:
        """Return how late scheduled jobs began, among the jobs that ended last, newest first."""
        with self._transaction() as (tables, _):
            return ledger_questions.recent_lateness(tables, limit)
