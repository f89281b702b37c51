"""Memory stores with one bug each in planning, each with the case that notices it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from duly.engine.kinds import StoredJob
from duly.model.claims import ClaimRequest, Claims
from duly.model.jobs import Job, JobId, JobState
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.plans import PlanReport, PlanRequest
from duly.model.schedules import ScheduleId
from duly.model.stored_jobs import MAX_SWEEP, JobRefused, Retention
from duly.rules.outcomes import Finish
from duly.stores import MemoryStore
from duly.stores.memory.tables import LedgerEntry, Tables
from duly.testing.conformance import PlanningConformance, StoreConformance


class BrokenLedger(MemoryStore):
    """Base of stores that rewrite the ledger."""

    def keep(self, wanted: Callable[[LedgerEntry], bool]) -> None:
        """Drop all other rows."""
        ledger = self._tables.ledger
        self._tables.ledger = {key: entry for key, entry in ledger.items() if wanted(entry)}

    def rewrite(self, change: Callable[[Occurrence], Occurrence]) -> None:
        """Change every row."""
        for key, entry in self._tables.ledger.items():
            self._tables.ledger[key] = replace(entry, occurrence=change(entry.occurrence))


class BrokenPlans(BrokenLedger):
    """Base of stores that change the request of a plan or its writes."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        before = self._tables.copy()
        report = await super().plan_occurrences(self.ask(request))
        self.spoil(before)
        return report

    def ask(self, request: PlanRequest) -> PlanRequest:
        return request

    def spoil(self, before: Tables) -> None:
        """Change the tables after the plan."""


class AdvancesWithoutLedger(BrokenPlans):
    def spoil(self, before: Tables) -> None:
        self._tables.ledger = before.ledger


class WritesLedgerWithoutJobs(BrokenPlans):
    def spoil(self, before: Tables) -> None:
        self._tables.jobs = before.jobs


class MakesASecondJob(BrokenPlans):
    """Makes it for a time that is already in the ledger."""

    def ask(self, request: PlanRequest) -> PlanRequest:
        self._tables.ledger.clear()
        return request


class LeavesRowsWhereTheyAre(BrokenPlans):
    def spoil(self, before: Tables) -> None:
        self._tables.rows = before.rows


class PlansEveryHandOver(BrokenPlans):
    def ask(self, request: PlanRequest) -> PlanRequest:
        for key, row in self._tables.rows.items():
            self._tables.rows[key] = replace(row, hand_over="jobs")
        return request


class PlansEveryTriggerVersion(BrokenPlans):
    def ask(self, request: PlanRequest) -> PlanRequest:
        for key, row in self._tables.rows.items():
            self._tables.rows[key] = replace(row, trigger_version=1)
        return request


class PlansEveryFlow(BrokenPlans):
    def ask(self, request: PlanRequest) -> PlanRequest:
        return replace(request, flows=None)


class NeverLooksAhead(BrokenPlans):
    def ask(self, request: PlanRequest) -> PlanRequest:
        return replace(request, look_ahead_ms=0)


class StartsAheadOfTime(BrokenPlans):
    """Queues jobs of the look-ahead at once."""

    def spoil(self, before: Tables) -> None:
        for job_id, (job, place) in self._tables.jobs.items():
            if job_id not in before.jobs:
                queued = msgspec.structs.replace(job, state=JobState.QUEUED)
                self._tables.jobs[job_id] = StoredJob(queued, place)


class SwallowsSilently(BrokenPlans):
    def spoil(self, before: Tables) -> None:
        del before
        self.keep(lambda entry: entry.occurrence.state is not OccurrenceState.MISSED)


class HidesBadRows(BrokenPlans):
    def spoil(self, before: Tables) -> None:
        del before
        self.keep(lambda entry: entry.occurrence.state is not OccurrenceState.QUARANTINED)


class NeverPlansTheRepaired(BrokenPlans):
    def ask(self, request: PlanRequest) -> PlanRequest:
        self.rewrite(
            lambda row: (
                msgspec.structs.replace(row, state=OccurrenceState.DENIED)
                if row.state is OccurrenceState.QUARANTINED
                else row
            )
        )
        return request


class KeepsFinishedRows(BrokenPlans):
    def spoil(self, before: Tables) -> None:
        for key, row in before.rows.items():
            self._tables.rows.setdefault(key, row)


class PlansFromAStaleRead(MemoryStore):
    """Advances without compare-and-set, so the rows it read may be planned already."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        seen = self._tables.copy()
        await asyncio.sleep(0)
        self._tables.rows, self._tables.ledger = seen.rows, seen.ledger
        return await super().plan_occurrences(request)


class IgnoresEnds(MemoryStore):
    """Does not update the ledger in finish()."""

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        before = dict(self._tables.ledger)
        void = await super().finish(finishes)
        self._tables.ledger = before
        return void


class RecordsDeniedAsCancelled(BrokenLedger):
    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        plainly = [
            each._replace(status="cancelled") if each.status == "denied" else each
            for each in finishes
        ]
        return await super().finish(plainly)


class ForgetsTheWorkspace(BrokenPlans):
    def spoil(self, before: Tables) -> None:  # noqa: ARG002
        for job_id, stored in list(self._tables.jobs.items()):
            job = msgspec.structs.replace(stored.job, workspace=stored.job.scope)
            self._tables.jobs[job_id] = stored._replace(job=job)


class IgnoresLosses(MemoryStore):
    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        before = dict(self._tables.ledger)
        count = await super().release_expired(limit)
        self._tables.ledger = before
        return count


class KeepsOnlyTheLastStart(BrokenLedger):
    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        self.rewrite(lambda row: msgspec.structs.replace(row, fired_at_ms=None))
        return await super().claim_jobs(request)


class BelievesAnyJob(BrokenLedger):
    async def cancel_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        self.rewrite(lambda row: msgspec.structs.replace(row, job_id=job_id))
        return await super().cancel_job(job_id, by=by, reason=reason)


class ForgetsWhatItRemoves(BrokenLedger):
    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        count = await super().prune(retention, limit)
        self.keep(lambda entry: entry.occurrence.job_id in self._tables.jobs)
        return count


class HidesWhatWasClaimed(MemoryStore):
    async def list_occurrences(self, schedule_id: ScheduleId, **words: Any) -> list[Occurrence]:
        rows = await super().list_occurrences(schedule_id, **words)
        return [row for row in rows if row.job_id is not None]


class ListsBeforeInclusively(MemoryStore):
    async def list_occurrences(
        self, schedule_id: ScheduleId, *, before_ms: int | None = None, **words: Any
    ) -> list[Occurrence]:
        before_ms = None if before_ms is None else before_ms + 1
        return await super().list_occurrences(schedule_id, before_ms=before_ms, **words)


BROKEN_PLANNING: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, PlanningConformance, name)
    for broken, name in (
        (AdvancesWithoutLedger, "test_due_row_becomes_ledger_job_and_next_time"),
        (WritesLedgerWithoutJobs, "test_due_row_becomes_ledger_job_and_next_time"),
        (MakesASecondJob, "test_row_set_back_makes_no_second_job"),
        (LeavesRowsWhereTheyAre, "test_repeated_plan_makes_nothing_more"),
        (PlansEveryHandOver, "test_other_hand_overs_are_left_alone"),
        (PlansEveryTriggerVersion, "test_newer_triggers_wait_for_newer_planners"),
        (PlansEveryFlow, "test_only_named_flows_are_planned"),
        (NeverLooksAhead, "test_look_ahead_makes_jobs_that_wait"),
        (StartsAheadOfTime, "test_look_ahead_makes_jobs_that_wait"),
        (SwallowsSilently, "test_run_once_runs_the_latest"),
        (HidesBadRows, "test_bad_rule_is_set_apart_and_written_down"),
        (NeverPlansTheRepaired, "test_mended_time_is_planned_after_all"),
        (KeepsFinishedRows, "test_last_time_finishes_its_schedule"),
        (PlansFromAStaleRead, "test_planners_at_once_make_one_job_each"),
        (IgnoresEnds, "test_success_from_plan_to_end"),
        (RecordsDeniedAsCancelled, "test_denied_is_not_failed"),
        (ForgetsTheWorkspace, "test_job_counts_in_the_workspace_of_its_schedule"),
        (IgnoresLosses, "test_poison_fails_its_occurrence"),
        (KeepsOnlyTheLastStart, "test_retries_stay_fired_until_the_last"),
        (BelievesAnyJob, "test_jobs_that_were_not_planned_move_nothing"),
        (ForgetsWhatItRemoves, "test_history_outlives_the_job"),
        (HidesWhatWasClaimed, "test_claims_and_plans_share_the_ledger"),
        (ListsBeforeInclusively, "test_pages_go_back_in_time"),
    )
]
