"""Memory stores with one planted bug each, about overlap, lateness, edits and extras.

A bug is planted by putting another function in the place of one of the memory store's own, for as
long as a verb runs; beside it stands the case that notices.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import ModuleType
from typing import Any, ClassVar

import pytest

from duly.job_store import JobRefused
from duly.jobs import Job, JobId, JobState
from duly.ledger import BACKFILLABLE, Occurrence, OccurrenceState
from duly.outcomes import Finish
from duly.plan_store import PlanReport, PlanRequest
from duly.planning import Come, plan_times, policies_of
from duly.schedules import Schedule, ScheduleId
from duly.stores import MemoryStore, spans
from duly.stores.memory import (
    extras,
    failing,
    hand_over,
    job_claims,
    job_moves,
    job_sweeps,
    ledger,
    schedules,
    turns,
    withdrawals,
)
from duly.stores.memory.tables import LedgerEntry, Tables
from duly.testing.conformance import PlanningConformance, StoreConformance
from duly.turns import Asking, Turns, decide_turns

Patch = tuple[ModuleType, str, object]


class Planted(MemoryStore):
    """Base of those with a wrong function in them."""

    patches: ClassVar[Sequence[Patch]] = ()

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Tables, int]]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            for module, name, wrong in self.patches:
                monkeypatch.setattr(module, name, wrong, raising=False)
            with super()._transaction() as given:
                yield given


def planted(name: str, *patches: Patch) -> type[MemoryStore]:
    """A store that has wrong functions in the place of right ones."""
    return type(name, (Planted,), {"patches": patches})


def nothing(*_args: object, **_names: object) -> None:
    """Does not do it."""


def give_back_to_nobody(tables: Tables, _now_ms: int, job: Job) -> None:
    if tables.running.get(job.schedule_id or "") == job.id:
        del tables.running[job.schedule_id or ""]


def all_may_run(*_: object) -> Turns:
    return Turns(None)


def all_wait(job: Job, _came_at_ms: int) -> Any:
    return Asking(job.id, "waits", policies_of(job.policies or "{}").overlap)


def all_ask(job: Job, _came_at_ms: int) -> Any:
    return Asking(job.id, "asks", policies_of(job.policies or "{}").overlap)


def last_come_first(job: Job) -> tuple[int, int, str]:
    return -job.run_at_ms, -(job.nominal_ms or 0), job.id


def waits_in_any_case(job: Job) -> bool:
    return job.state in job_sweeps.WAITING


_stop = turns._stop


def stop_only_what_runs(tables: Tables, now_ms: int, decided: Turns, heir: Any) -> None:
    assert decided.cancels is not None
    if tables.jobs[decided.cancels].job.state == JobState.PROCESSING:
        _stop(tables, now_ms, decided, heir)


def first_of_many(asking: Any, holder: Any, *rest: Any) -> Turns:
    """The first to ask runs, whoever comes at the same moment."""
    if holder is None:
        line = [each.job_id for each in asking[1:]]
        return Turns(asking[0].job_id, is_new=True, in_line=line)
    return decide_turns(asking, holder, *rest)


def nobody_is_late(*_: object) -> set[JobId]:
    return set()


def anything_of(tables: Tables, job: Job) -> Occurrence | None:
    """Takes what has begun for planned."""
    entry = tables.ledger.get((ScheduleId(job.schedule_id or ""), job.nominal_ms or 0))
    return None if entry is None else entry.occurrence


def backwards(found: list[Any], key: Any = None) -> list[Any]:
    return sorted(found, key=key, reverse=True)


def stays_finished(stored: Any, *_: object) -> Any:
    return stored, None


def from_the_first_withdrawn(
    stored: Any, row: Any, come: Come, runs_left: int | None, now_ms: int
) -> Any:
    """Takes along whatever the rule has between a withdrawn time and the edit."""
    del now_ms
    return *schedules._set_back(stored, row, list(come.times), runs_left), []


def forgets_them(row: Any, *_: object) -> Any:
    return [], row.runs_left


def charges_nothing(row: Any, come: Come, now_ms: int) -> Any:
    return plan_times(row, come, now_ms)[0], row.runs_left


def put_beside(tables: Tables, occurrence: Occurrence, claim_id: str | None = None) -> None:
    key = (occurrence.schedule_id, occurrence.nominal_ms)
    tables.ledger[key] = LedgerEntry(occurrence, claim_id=claim_id)


def whole_span(_rule: str, whole: Any, _taken: object) -> list[Any]:
    return [whole]


def taken_only(_rule: str, rows: Iterable[spans.Row]) -> list[tuple[int, int]]:
    return [(row.first_ms, row.last_ms) for row in rows if row.is_taken]


def has_no_row(step: Any, schedule: Schedule, at_ms: int) -> bool:
    return ledger.entry_at(step.tables, schedule.id, at_ms) is None


_all_failed = failing._all_failed


def ever_failed(tables: Tables, schedule_id: ScheduleId, most: int) -> bool:
    """Forgets that it was resumed."""
    events, tables.events = tables.events, []
    try:
        return _all_failed(tables, schedule_id, most)
    finally:
        tables.events = events


class GivesBackAtRetries(MemoryStore):
    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        void = await super().finish(finishes)
        jobs = self._tables.jobs
        self._tables.running = {
            schedule_id: job_id
            for schedule_id, job_id in self._tables.running.items()
            if jobs[job_id].job.state != JobState.RETRYING
        }
        return void


class SkipsSilently(MemoryStore):
    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        report = await super().plan_occurrences(request)
        self._tables.ledger = {
            key: entry
            for key, entry in self._tables.ledger.items()
            if entry.occurrence.state is not OccurrenceState.SKIPPED
        }
        return report


class RevivedStealTheMarker(MemoryStore):
    async def retry_job(self, job_id: JobId, **words: Any) -> Job | JobRefused:
        answer = await super().retry_job(job_id, **words)
        if isinstance(answer, Job) and answer.schedule_id is not None:
            self._tables.running[answer.schedule_id] = job_id
        return answer


class RunsNowEachTime(MemoryStore):
    _numbers: ClassVar[Iterator[int]] = count()

    async def run_now(self, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
        return await super().run_now(schedule_id, f"{request_id}{next(self._numbers)}")


class ChargesExtras(MemoryStore):
    async def run_now(self, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
        extra = await super().run_now(schedule_id, request_id)
        for key, row in self._tables.rows.items():
            if row.runs_left is not None:
                self._tables.rows[key] = replace(row, runs_left=row.runs_left - 1)
        return extra


class NeverPausesAnybody(MemoryStore):
    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        del schedule_id
        return None


BROKEN_TURNS: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, PlanningConformance, name)
    for broken, name in (
        (
            planted("KeepsTheMarker", (job_moves, "_give_back", nothing)),
            "test_skip_ends_with_the_one_in_its_way",
        ),
        (
            planted("HandsOverToNobody", (job_moves, "_give_back", give_back_to_nobody)),
            "test_every_end_hands_over",
        ),
        (GivesBackAtRetries, "test_retries_keep_the_marker"),
        (
            planted("LetsAllRun", (turns, "settle", all_may_run)),
            "test_skip_makes_no_second_job",
        ),
        (SkipsSilently, "test_skip_makes_no_second_job"),
        (
            planted("BuffersAll", (turns, "_asking", all_wait)),
            "test_buffer_one_keeps_one_in_line",
        ),
        (
            planted("SkipsTheCaughtUp", (turns, "_asking", all_ask)),
            "test_caught_up_runs_one_after_another",
        ),
        (
            planted("ServesTheLastFirst", (job_moves, "turn_key", last_come_first)),
            "test_first_in_line_is_the_oldest",
        ),
        (
            planted("PromotesTheLine", (job_sweeps, "is_waiting", waits_in_any_case)),
            "test_buffer_one_stands_in_line_until_the_end",
        ),
        (
            planted("WakesForTheLine", (job_claims, "is_waiting", waits_in_any_case)),
            "test_buffer_one_stands_in_line_until_the_end",
        ),
        (
            planted("StopsNobody", (turns, "_stop", nothing)),
            "test_cancel_running_asks_the_holder_to_stop",
        ),
        (
            planted("StopsOnlyWhatRuns", (turns, "_stop", stop_only_what_runs)),
            "test_cancel_running_takes_a_waiting_holder_away",
        ),
        (RevivedStealTheMarker, "test_revived_job_runs_beside_the_holder"),
        (
            planted("LetsTheOlderStopTheNewer", (turns, "_held_at_ms", nothing)),
            "test_older_run_does_not_cancel_a_newer_one",
        ),
        (
            planted("QueuesTheFirstOfMany", (turns, "decide_turns", first_of_many)),
            "test_cancel_running_at_once_runs_the_newest",
        ),
        (
            planted("IsNeverLate", (turns, "decide_late", nobody_is_late)),
            "test_late_jobs_are_missed_but_the_latest",
        ),
        (
            planted("CallsTheMissedSkipped", (ledger, "end_planned", nothing)),
            "test_late_jobs_are_missed_but_the_latest",
        ),
        (
            planted("WithdrawsNothing", (schedules, "withdraw", lambda *_, **__: [])),
            "test_edit_just_before_the_time_loses_nothing",
        ),
        (
            planted("LosesTheWithdrawn", (schedules, "still_had", lambda *_: [])),
            "test_edit_just_before_the_time_loses_nothing",
        ),
        (
            planted("WithdrawsWhatBegan", (ledger, "planned_of", anything_of)),
            "test_released_job_has_begun",
        ),
        (
            planted("WithdrawsForWords", (schedules, "without_words", lambda given: given)),
            "test_description_and_note_touch_nothing",
        ),
        (
            planted("StaysFinished", (schedules, "_anew", stays_finished)),
            "test_more_runs_begin_after_the_edit",
        ),
        (
            planted("PlansBeforeTheEdit", (schedules, "_come_again", from_the_first_withdrawn)),
            "test_new_rule_has_no_times_before_the_edit",
        ),
        (
            planted("TakesTheQueuedForLate", (schedules, "admitted", lambda *_: {})),
            "test_new_trigger_loses_nothing_that_is_queued",
        ),
        (
            planted("ForgetsWhatHadCome", (schedules, "plan_times", forgets_them)),
            "test_withdrawn_times_before_and_after_the_edit",
        ),
        (
            planted("GivesARunTwice", (schedules, "plan_times", charges_nothing)),
            "test_more_runs_begin_after_the_edit",
        ),
        (
            planted("WithdrawsExtras", (ledger, "EXTRAS", frozenset())),
            "test_extras_survive_an_edit_and_not_the_deletion",
        ),
        (
            planted("HandsOverToTheWithdrawn", (withdrawals, "sorted", backwards)),
            "test_line_is_withdrawn_before_its_holder",
        ),
        (
            planted("LeavesWritesToPlanners", (schedules, "plan_at_once", nothing)),
            "test_next_minute_is_planned_by_the_write",
        ),
        (
            planted("ForgetsPauses", (schedules, "write_pause", nothing)),
            "test_resume_writes_down_what_the_pause_swallowed",
        ),
        (
            planted("CoversTheWithdrawnTwice", (ledger, "put", put_beside)),
            "test_withdrawn_times_of_the_pause_are_swallowed",
        ),
        (
            planted("CoversTheBackfilledTwice", (spans, "spans_left", whole_span)),
            "test_planner_leaves_backfilled_times_alone",
        ),
        (
            planted("CoversTheBegunTwice", (spans, "spans_left", whole_span)),
            "test_times_set_back_are_covered_once",
        ),
        (
            planted("KnowsTheLastRuleAlone", (withdrawals, "Change", lambda at_ms, _: (at_ms, 0))),
            "test_every_rule_of_the_pause_has_its_own_times",
        ),
        (
            planted("ForgetsAnEarlierRule", (withdrawals, "in_the_way", taken_only)),
            "test_times_of_an_earlier_rule_stay_in_the_ledger",
        ),
        (
            planted("ForgetsWhatWasDue", (schedules, "_plan_overdue", nothing)),
            "test_deletion_covers_the_times_that_had_come",
        ),
        (RunsNowEachTime, "test_same_request_gives_the_same_run"),
        (
            planted("TakesTheSchedulesTime", (extras, "_is_nobodys", has_no_row)),
            "test_extra_run_takes_no_time_of_the_schedule",
        ),
        (ChargesExtras, "test_extra_run_does_not_move_the_hand"),
        (
            planted("CountsExtras", (ledger, "is_extra", lambda _: False)),
            "test_lost_rows_do_not_count_extra_runs",
        ),
        (
            planted(
                "BackfillsTwice", (extras, "BACKFILLABLE", BACKFILLABLE | {OccurrenceState.PLANNED})
            ),
            "test_repeated_backfill_takes_nothing_twice",
        ),
        (
            planted("DropsTheRestOfARange", (extras, "_rest", lambda *_: [])),
            "test_bounds_are_from_inclusive_to_exclusive",
        ),
        (
            planted("SkipsTheBackfilled", (hand_over, "_LATE", frozenset({"catch_up"}))),
            "test_backfilled_jobs_run_one_after_another",
        ),
        (NeverPausesAnybody, "test_failures_in_a_row_pause"),
        (
            planted("PausesForOldFailures", (failing, "_all_failed", ever_failed)),
            "test_resume_counts_anew",
        ),
        (
            planted("PausesForAnything", (failing, "_all_failed", lambda *_: True)),
            "test_success_between_ends_the_row",
        ),
        (
            planted("CountsTheCancelled", (failing, "_was_broken_off", lambda *_: False)),
            "test_runs_that_were_cancelled_count_for_nothing",
        ),
    )
]
