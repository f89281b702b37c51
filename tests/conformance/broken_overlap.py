"""Memory stores with one planted bug each in overlap, lateness, edits and extra runs.

A bug replaces a function of the engine or of the memory store while a verb runs; each is listed
with the case that notices it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import ModuleType
from typing import Any, ClassVar

import pytest

from duly.engine import kinds
from duly.engine.jobs import jobs, moves
from duly.engine.kinds import MARKER, OCCURRENCE, StoredOccurrence
from duly.engine.schedules import (
    extras,
    failing,
    hand_over,
    overlap,
    planning,
    schedules,
    withdrawals,
)
from duly.engine.schedules import ledger as engine_ledger
from duly.engine.transaction import Tx
from duly.engine.upkeep import walks
from duly.model.jobs import Job, JobId, JobState
from duly.model.ledger import BACKFILLABLE, Occurrence, OccurrenceState
from duly.model.plans import PlanReport, PlanRequest
from duly.model.schedules import Schedule, ScheduleId
from duly.model.stored_jobs import JobRefused
from duly.rules import edits, spans
from duly.rules.edits import Edit
from duly.rules.outcomes import Finish
from duly.rules.overlap import Asking, OverlapDecision, decide_overlap
from duly.rules.planning import DueTimes, plan_times, policies_of
from duly.stores import MemoryStore
from duly.stores.memory.tables import Tables
from duly.testing.conformance import PlanningConformance, StoreConformance

Patch = tuple[ModuleType | type, str, object]


class Planted(MemoryStore):
    """Base of stores with replaced functions."""

    patches: ClassVar[Sequence[Patch]] = ()

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Tables, int]]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            for module, name, wrong in self.patches:
                monkeypatch.setattr(module, name, wrong, raising=False)
            with super()._transaction() as given:
                yield given


def planted(name: str, *patches: Patch) -> type[MemoryStore]:
    """Return a store class in which functions are replaced by wrong ones."""
    return type(name, (Planted,), {"patches": patches})


def nothing(*_args: object, **_names: object) -> None:
    """Do nothing."""


def drop_marker(tx: Tx, job: Job) -> None:
    marker = tx.get(MARKER, job.schedule_id or "")
    if marker is not None and marker.job_id == job.id:
        tx.delete(MARKER, marker.schedule_id)


def all_may_run(*_: object) -> OverlapDecision:
    return OverlapDecision(None)


def all_wait(job: Job, _came_at_ms: int) -> Any:
    return Asking(job.id, "waits", policies_of(job.policies or "{}").overlap)


def all_ask(job: Job, _came_at_ms: int) -> Any:
    return Asking(job.id, "asks", policies_of(job.policies or "{}").overlap)


def last_come_first(job: Job) -> tuple[int, int, str]:
    return -job.run_at_ms, -(job.nominal_ms or 0), job.id


def waits_in_any_case(job: Job) -> bool:
    return job.state in kinds.WAITING_STATES


_stop = overlap._stop


def stop_only_what_runs(tx: Tx, turns: OverlapDecision, successor: Any) -> None:
    assert turns.cancels is not None
    holder = tx.get(kinds.JOB, turns.cancels)
    if holder is not None and holder.job.state is JobState.PROCESSING:
        _stop(tx, turns, successor)


def first_of_many(asking: Any, holder: Any, *rest: Any) -> OverlapDecision:
    """Let the first one run, without regard to others that came at the same time."""
    if holder is None:
        line = [each.job_id for each in asking[1:]]
        return OverlapDecision(asking[0].job_id, is_new=True, in_line=line)
    return decide_overlap(asking, holder, *rest)


def nobody_is_late(*_: object) -> set[JobId]:
    return set()


def anything_of(tx: Tx, job: Job) -> Occurrence | None:
    """Return occurrences that have started as if they were planned."""
    item = engine_ledger.of_job(tx, job)
    return None if item is None else item.occurrence


def backwards(found: list[Any], key: Any = None) -> list[Any]:
    return sorted(found, key=key, reverse=True)


_placed = edits._placed


def stays_finished(schedule: Schedule, after_ms: int) -> Any:
    """Place new schedules only."""
    if schedule.version == 1:
        return _placed(schedule, after_ms)
    return replace(schedule, state="finished"), None


def not_set_back(edit: Edit, *_: object) -> Edit:
    return edit


def from_the_first_withdrawn(edit: Edit, come: DueTimes, _now_ms: int) -> Edit:
    """Include all times of the rule between a withdrawn time and the edit."""
    return edits._row_back(edit, come.times[0])


def forgets_them(row: Any, *_: object) -> Any:
    return [], row.runs_left


def charges_nothing(row: Any, come: DueTimes, now_ms: int) -> Any:
    return plan_times(row, come, now_ms)[0], row.runs_left


def write_beside(tx: Tx, item: StoredOccurrence) -> None:
    tx.get(OCCURRENCE, *OCCURRENCE.key(item))
    tx.put(OCCURRENCE, item)


def whole_span(_rule: str, whole: Any, _taken: object) -> list[Any]:
    return [whole]


def taken_only(_rule: str, rows: Iterable[spans.Row]) -> list[tuple[int, int]]:
    return [(row.first_ms, row.last_ms) for row in rows if row.is_taken]


def without_row(tx: Tx, schedule: Schedule) -> int:
    at_ms = tx.now_ms
    while engine_ledger.covering(tx, schedule.id, at_ms) is not None:
        at_ms += 1
    return at_ms


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


class NeverPausesFailing(MemoryStore):
    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        del schedule_id
        return None


BROKEN_OVERLAP: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, PlanningConformance, name)
    for broken, name in (
        (
            planted("KeepsTheMarker", (moves, "give_back", nothing)),
            "test_skip_ends_with_the_one_in_its_way",
        ),
        (
            planted("HandsOverToNobody", (moves, "give_back", drop_marker)),
            "test_every_end_hands_over",
        ),
        (GivesBackAtRetries, "test_retries_keep_the_marker"),
        (
            planted("LetsAllRun", (overlap, "settle", all_may_run)),
            "test_skip_makes_no_second_job",
        ),
        (SkipsSilently, "test_skip_makes_no_second_job"),
        (
            planted("BuffersAll", (overlap, "_asking", all_wait)),
            "test_buffer_one_keeps_one_in_line",
        ),
        (
            planted("SkipsTheCaughtUp", (overlap, "_asking", all_ask)),
            "test_caught_up_runs_one_after_another",
        ),
        (
            planted("ServesTheLastFirst", (kinds, "run_order", last_come_first)),
            "test_first_in_line_is_the_oldest",
        ),
        (
            planted(
                "PromotesTheLine",
                (kinds, "is_waiting", waits_in_any_case),
                (jobs, "is_waiting", waits_in_any_case),
            ),
            "test_buffer_one_stands_in_line_until_the_end",
        ),
        (
            planted("WakesForTheLine", (kinds, "is_waiting", waits_in_any_case)),
            "test_buffer_one_stands_in_line_until_the_end",
        ),
        (
            planted("StopsNobody", (overlap, "_stop", nothing)),
            "test_cancel_running_asks_the_holder_to_stop",
        ),
        (
            planted("StopsOnlyWhatRuns", (overlap, "_stop", stop_only_what_runs)),
            "test_cancel_running_takes_a_waiting_holder_away",
        ),
        (RevivedStealTheMarker, "test_revived_job_runs_beside_the_holder"),
        (
            planted("LetsTheOlderStopTheNewer", (overlap, "_held_at_ms", nothing)),
            "test_older_run_does_not_cancel_a_newer_one",
        ),
        (
            planted("QueuesTheFirstOfMany", (overlap, "decide_overlap", first_of_many)),
            "test_cancel_running_at_once_runs_the_newest",
        ),
        (
            planted("IsNeverLate", (overlap, "decide_late", nobody_is_late)),
            "test_late_jobs_are_missed_but_the_latest",
        ),
        (
            planted("CallsTheMissedSkipped", (engine_ledger, "end_planned", nothing)),
            "test_late_jobs_are_missed_but_the_latest",
        ),
        (
            planted("WithdrawsNothing", (withdrawals, "withdraw", lambda *_, **__: [])),
            "test_edit_just_before_the_time_loses_nothing",
        ),
        (
            planted(
                "LosesTheWithdrawn",
                (edits, "_row_back", not_set_back),
                (edits, "_come_again", not_set_back),
            ),
            "test_edit_just_before_the_time_loses_nothing",
        ),
        (
            planted("WithdrawsWhatBegan", (engine_ledger, "planned_of", anything_of)),
            "test_released_job_has_begun",
        ),
        (
            planted("WithdrawsForWords", (edits, "without_words", lambda given: given)),
            "test_description_and_note_touch_nothing",
        ),
        (
            planted("StaysFinished", (edits, "_placed", stays_finished)),
            "test_more_runs_begin_after_the_edit",
        ),
        (
            planted("PlansBeforeTheEdit", (edits, "_come_again", from_the_first_withdrawn)),
            "test_new_rule_has_no_times_before_the_edit",
        ),
        (
            planted("TakesTheQueuedForLate", (withdrawals, "admitted", lambda *_: {})),
            "test_new_trigger_loses_nothing_that_is_queued",
        ),
        (
            planted("ForgetsWhatHadCome", (edits, "plan_times", forgets_them)),
            "test_withdrawn_times_before_and_after_the_edit",
        ),
        (
            planted("RunsWhatWasMissed", (planning.RowPlan, "is_after_edits", True)),
            "test_time_missed_in_a_pause_does_not_run_when_it_is_spread",
        ),
        (
            planted("GivesARunTwice", (edits, "plan_times", charges_nothing)),
            "test_more_runs_begin_after_the_edit",
        ),
        (
            planted("WithdrawsExtras", (engine_ledger, "EXTRAS", frozenset())),
            "test_extras_survive_an_edit_and_not_the_deletion",
        ),
        (
            planted("HandsOverToTheWithdrawn", (withdrawals, "sorted", backwards)),
            "test_line_is_withdrawn_before_its_holder",
        ),
        (
            planted("LeavesWritesToPlanners", (schedules, "plan_soon", nothing)),
            "test_next_minute_is_planned_by_the_write",
        ),
        (
            planted("ForgetsPauses", (withdrawals, "write_pause", nothing)),
            "test_resume_writes_down_what_the_pause_swallowed",
        ),
        (
            planted("CoversTheWithdrawnTwice", (engine_ledger, "write", write_beside)),
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
            planted("ForgetsWhatWasDue", (schedules, "is_overdue", lambda *_: False)),
            "test_deletion_covers_the_times_that_had_come",
        ),
        (RunsNowEachTime, "test_same_request_gives_the_same_run"),
        (
            planted("TakesTheSchedulesTime", (extras, "_free_ms", without_row)),
            "test_extra_run_takes_no_time_of_the_schedule",
        ),
        (ChargesExtras, "test_extra_run_does_not_move_the_hand"),
        (
            planted("CountsExtras", (walks, "is_extra", lambda _: False)),
            "test_lost_rows_do_not_count_extra_runs",
        ),
        (
            planted(
                "BackfillsTwice", (extras, "BACKFILLABLE", BACKFILLABLE | {OccurrenceState.PLANNED})
            ),
            "test_repeated_backfill_takes_nothing_twice",
        ),
        (
            planted("DropsTheRestOfARange", (extras, "spans_left", lambda *_: [])),
            "test_bounds_are_from_inclusive_to_exclusive",
        ),
        (
            planted("SkipsTheBackfilled", (hand_over, "_LATE", frozenset({"catch_up"}))),
            "test_backfilled_jobs_run_one_after_another",
        ),
        (NeverPausesFailing, "test_failures_in_a_row_pause"),
        (
            planted("PausesForOldFailures", (failing, "_resumed_at_ms", lambda *_: -1)),
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
