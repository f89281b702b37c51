"""The reading verbs of the async port: searches and ledger queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from duly.model.index_rows import IndexRow
from duly.model.jobs import JobId
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.ledger_counts import Lateness, LedgerSummary, MissingSchedule, OccurrenceCounts
from duly.model.locks import Lock
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Schedule, ScheduleId
from duly.stores.sql.fast import heartbeats
from duly.stores.sql.reads import ledger_counts, ledger_questions, schedule_searches
from duly.stores.sql.rows import ledger
from duly.stores.sql.verbs.jobs import JobVerbs


class ReadVerbs(JobVerbs):
    """The reading verbs on one relational database, for pages."""

    async def list_locks(
        self, name: str | None = None, *, after: str = "", limit: int = 100
    ) -> list[Lock]:
        """Return one page of the held locks."""
        return await self._run(heartbeats.list_locks, name, after=after, limit=limit)

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        """Return one page of schedules of all scopes."""
        return await self._run(schedule_searches.search_schedules, which, after=after, limit=limit)

    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        """Return the index rows of schedules."""
        return await self._run(schedule_searches.find_rows, schedule_ids)

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
        return await self._run(
            ledger.list_occurrences,
            schedule_id,
            before_ms=before_ms,
            since_ms=since_ms,
            states=states,
            limit=limit,
        )

    async def occurrence_at(self, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
        """Return the ledger row that covers a nominal time, or None."""
        return await self._run(ledger_questions.occurrence_at, schedule_id, nominal_ms)

    async def occurrences_of_jobs(self, job_ids: Sequence[JobId]) -> dict[JobId, Occurrence]:
        """Return the occurrences of jobs."""
        return await self._run(ledger_questions.occurrences_of_jobs, job_ids)

    async def ledger_summary(
        self, schedule_id: ScheduleId, from_ms: int, to_ms: int
    ) -> LedgerSummary:
        """Count the outcomes of the times from one instant up to but excluding another."""
        return await self._run(ledger_questions.ledger_summary, schedule_id, from_ms, to_ms)

    async def count_occurrences(self) -> OccurrenceCounts:
        """Count the times of the whole ledger by flow and outcome."""
        return await self._run(ledger_counts.count_occurrences)

    async def find_missing(self, limit: int = 50) -> list[MissingSchedule]:
        """Return schedules with a next time that keep missing or skipping, by id."""
        return await self._run(ledger_counts.find_missing, limit)

    async def recent_lateness(self, limit: int = 1_000) -> list[Lateness]:
        """Return the start delays of the scheduled jobs that ended last, newest first."""
        return await self._run(ledger_questions.recent_lateness, limit)
