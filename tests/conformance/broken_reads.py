"""Memory stores with one bug each in reads, each with the case that notices it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from duly.model.index_rows import IndexRow
from duly.model.ledger import Occurrence, OccurrenceState, outcome_of
from duly.model.ledger_counts import (
    Lateness,
    LedgerSummary,
    MissingSchedule,
    OccurrenceCounts,
    OutcomeCount,
)
from duly.model.locks import Lock
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Schedule, ScheduleId
from duly.stores import MemoryStore
from duly.testing.conformance import (
    LockConformance,
    PlanningConformance,
    ScheduleConformance,
    StoreConformance,
)


class BrokenSearch(MemoryStore):
    """Base of stores that change the filter of a search."""

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        return await super().search_schedules(self.ask(which), after=after, limit=limit)

    def ask(self, which: ScheduleFilter) -> ScheduleFilter:
        return which


class SearchesEveryFlow(BrokenSearch):
    def ask(self, which: ScheduleFilter) -> ScheduleFilter:
        return replace(which, flow=None)


class SearchesEveryScope(BrokenSearch):
    def ask(self, which: ScheduleFilter) -> ScheduleFilter:
        return replace(which, scope=None)


class SearchesEveryState(BrokenSearch):
    def ask(self, which: ScheduleFilter) -> ScheduleFilter:
        return replace(which, state=None)


class SearchesEveryName(BrokenSearch):
    def ask(self, which: ScheduleFilter) -> ScheduleFilter:
        return replace(which, name_prefix="")


class SearchesByScopeFirst(MemoryStore):
    async def search_schedules(self, which: ScheduleFilter, **words: Any) -> list[Schedule]:
        found = await super().search_schedules(which, **words)
        return sorted(found, key=lambda each: str(each.scope))


class RepeatsTheLastOfAPage(MemoryStore):
    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        found = await super().search_schedules(which, limit=1_000)
        if after is None:
            return found[:limit]
        keys = [ScheduleKey(each.flow, str(each.scope), each.name) for each in found]
        return found[keys.index(after) :][:limit] if after in keys and after != keys[-1] else []


class FindsQuarantinedRows(MemoryStore):
    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        rows = self._tables.rows.values()
        return {row.schedule_id: row for row in rows if row.schedule_id in schedule_ids}


class FindsExactTimesOnly(MemoryStore):
    async def occurrence_at(self, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
        found = await super().occurrence_at(schedule_id, nominal_ms)
        return found if found is not None and found.nominal_ms == nominal_ms else None


class FindsWhatWasBefore(MemoryStore):
    async def occurrence_at(self, schedule_id: ScheduleId, nominal_ms: int) -> Occurrence | None:
        found = await self.list_occurrences(schedule_id, before_ms=nominal_ms + 1, limit=1)
        return found[0] if found else None


class IgnoresStates(MemoryStore):
    async def list_occurrences(
        self,
        schedule_id: ScheduleId,
        *,
        states: object = None,  # noqa: ARG002
        **words: Any,
    ) -> list[Occurrence]:
        return await super().list_occurrences(schedule_id, **words)


class ListsSinceExclusively(MemoryStore):
    async def list_occurrences(
        self, schedule_id: ScheduleId, *, since_ms: int | None = None, **words: Any
    ) -> list[Occurrence]:
        since_ms = None if since_ms is None else since_ms + 1
        return await super().list_occurrences(schedule_id, since_ms=since_ms, **words)


class BrokenSummary(MemoryStore):
    """Base of stores with wrong summaries."""

    async def ledger_summary(
        self, schedule_id: ScheduleId, from_ms: int, to_ms: int
    ) -> LedgerSummary:
        return self.spoil(await super().ledger_summary(schedule_id, from_ms, to_ms))

    def spoil(self, summary: LedgerSummary) -> LedgerSummary:
        return summary


class CountsRowsNotTimes(BrokenSummary):
    def spoil(self, summary: LedgerSummary) -> LedgerSummary:
        return replace(summary, counts=tuple(each._replace(times=1) for each in summary.counts))


class ForgetsTheEdges(BrokenSummary):
    def spoil(self, summary: LedgerSummary) -> LedgerSummary:
        return replace(summary, edges=())


class CountsExtrasAsTimes(BrokenSummary):
    def spoil(self, summary: LedgerSummary) -> LedgerSummary:
        return replace(summary, counts=tuple(each._replace(reason=None) for each in summary.counts))


class CountsTheEndIn(MemoryStore):
    async def ledger_summary(
        self, schedule_id: ScheduleId, from_ms: int, to_ms: int
    ) -> LedgerSummary:
        return await super().ledger_summary(schedule_id, from_ms, to_ms + 1)


class MeasuresFromTheNominalTime(MemoryStore):
    async def recent_lateness(self, limit: int = 1_000) -> list[Lateness]:
        found = await super().recent_lateness(limit)
        return [each._replace(late_ms=each.late_ms + 1) for each in found]


class ForgetsTheDead(MemoryStore):
    async def recent_lateness(self, limit: int = 1_000) -> list[Lateness]:
        failed = OccurrenceState.FAILED
        rows = [entry.occurrence for entry in self._tables.ledger.values()]
        gone = {row.fired_at_ms for row in rows if row.state is failed}
        found = await super().recent_lateness(limit)
        return [each for each in found if each.fired_at_ms not in gone]


class CountsLedgerRows(MemoryStore):
    """Counts a range of missed times as one."""

    async def count_occurrences(self) -> OccurrenceCounts:
        rows = [entry.occurrence for entry in self._tables.ledger.values()]
        counts = Counter((row.flow, outcome_of(row.state, row.reason)) for row in rows)
        return OccurrenceCounts([OutcomeCount(*key, n) for key, n in sorted(counts.items())])


class CountsPausesAsMisses(MemoryStore):
    async def count_occurrences(self) -> OccurrenceCounts:
        found = await super().count_occurrences()
        counts = Counter[tuple[str, str]]()
        for flow, outcome, times in found.counts:
            counts[flow, "missed" if outcome == "paused" else outcome] += times
        return OccurrenceCounts([OutcomeCount(*key, n) for key, n in sorted(counts.items())])


class OverlooksWhoKeepsSkipping(MemoryStore):
    async def find_missing(self, limit: int = 50) -> list[MissingSchedule]:
        return [each for each in await super().find_missing(limit) if each.missed]


class ListsFreeLocks(MemoryStore):
    async def list_locks(self, name: str | None = None, **words: Any) -> list[Lock]:
        found = await super().list_locks(name, **words)
        free = [
            Lock(each, held.owner or "", held.fence, held.until_ms)
            for each, held in self._tables.locks.items()
            if each == name and held.owner is None
        ]
        return found + free


_SEARCHES = (
    (SearchesEveryFlow, "test_filters_narrow_the_search"),
    (SearchesEveryScope, "test_filters_narrow_the_search"),
    (SearchesEveryState, "test_search_knows_every_state"),
    (SearchesEveryName, "test_names_are_searched_by_their_beginning"),
    (SearchesByScopeFirst, "test_search_goes_over_all_scopes_by_flow_name_and_scope"),
    (RepeatsTheLastOfAPage, "test_pages_join_without_gap_or_double"),
    (FindsQuarantinedRows, "test_quarantined_rows_have_no_next_time"),
)
_LEDGER = (
    (FindsExactTimesOnly, "test_swallowed_time_is_found_in_its_run"),
    (FindsWhatWasBefore, "test_swallowed_time_is_found_in_its_run"),
    (IgnoresStates, "test_pages_of_some_states"),
    (ListsSinceExclusively, "test_pages_of_a_window"),
    (CountsRowsNotTimes, "test_summary_counts_times_by_state"),
    (ForgetsTheEdges, "test_runs_over_an_end_of_the_window_are_given_whole"),
    (CountsExtrasAsTimes, "test_summary_tells_extras_and_pauses_apart"),
    (CountsTheEndIn, "test_summary_leaves_out_what_is_outside"),
    (MeasuresFromTheNominalTime, "test_lateness_of_what_ended_last"),
    (CountsLedgerRows, "test_counts_of_the_ledger_are_its_rows"),
    (CountsPausesAsMisses, "test_what_a_pause_swallowed_is_counted_apart"),
    (OverlooksWhoKeepsSkipping, "test_schedules_that_keep_skipping_are_found"),
    (ForgetsTheDead, "test_lateness_of_what_ended_last"),
)

BROKEN_READS: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    *((broken, ScheduleConformance, name) for broken, name in _SEARCHES),
    *((broken, PlanningConformance, name) for broken, name in _LEDGER),
    (ListsFreeLocks, LockConformance, "test_held_locks_are_listed_by_name"),
]
