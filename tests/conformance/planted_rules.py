"""Rules of scheduling: the function of each, a wrong replacement and the case that then fails.

If SQL has a fast path for a rule, the case is one that the fast path leaves to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, cast

from duly.engine.jobs import moves
from duly.engine.schedules import extras, failing, hand_over, withdrawals
from duly.engine.upkeep import erasure, retention
from duly.model import ledger
from duly.model.jobs import JobId, JobState, StartMode
from duly.model.ledger import OccurrenceState
from duly.model.upkeep import Erased
from duly.rules import (
    dispatches,
    edits,
    outcomes,
    overlap,
    planning,
    quotas,
    rule_history,
    runs,
    spans,
    zone_times,
)
from duly.rules.outcomes import Loss, Lost
from duly.rules.overlap import Asking, OverlapDecision
from duly.rules.planning import Plan
from duly.testing.conformance import (
    DispatchConformance,
    JobConformance,
    PlanningConformance,
    ScheduleConformance,
    StoreConformance,
    UpkeepConformance,
)


@dataclass(frozen=True)
class Rule:
    """A rule, and the test that shows that it is implemented once."""

    name: str
    right: Callable[..., Any]
    """The function that implements the rule."""
    wrong: Callable[..., Any]
    suite: type[StoreConformance]
    case: str
    """The test of the suite that fails with the wrong function."""

    @property
    def place(self) -> str:
        """Return the module and the name of the function."""
        return f"{self.right.__module__}.{cast('FunctionType', self.right).__qualname__}"


def nothing(*_args: object, **_names: object) -> None:
    """Do nothing, which also allows everything."""


def unchanged(given: Any, *_: object, **_names: object) -> Any:
    """Return the first argument."""
    return given


def everybody_runs(asking: Sequence[Asking], holder: JobId | None, *_: object) -> OverlapDecision:
    """Neither skip a job nor make it wait."""
    return OverlapDecision(holder or asking[0].job_id, is_new=holder is None)


def charge_nothing(row: Any, made: Plan, _handed_over: int) -> Plan:
    return made._replace(runs_left=row.runs_left)


def die_at_once(job: Lost) -> Loss:
    return Loss((JobState.FAILED, JobState.DEAD), StartMode(job.start_mode), 1)


def take_up_all(_tx: object, _schedule_id: object, times: Sequence[int]) -> Any:
    """Plan every time, even if the ledger already has it."""
    return extras._Looked(list(times))


def all_are_free(_rule: str, occurrences: Sequence[Any], _rows: object) -> list[Any]:
    return list(occurrences)


def post_for_ever(*_: object, **_names: object) -> dispatches.RowState:
    return dispatches.RowState(OccurrenceState.DISPATCHING, None)


def forget_now(_tx: object, ids: Sequence[str], _edge_ms: int) -> dict[str, int]:
    """Prune everything, even the newest occurrence of a schedule."""
    return dict.fromkeys(ids, retention.EVERY_MS)


def keep_its_time(row: zone_times.Zoned, _now_ms: int) -> int:
    return row.nominal_ms


RULES = [
    Rule(
        "edits",
        edits.set_back,
        unchanged,
        PlanningConformance,
        "test_edit_just_before_the_time_loses_nothing",
    ),
    Rule(
        "withdrawal",
        withdrawals.withdraw,
        lambda *_, **__: [],
        PlanningConformance,
        "test_deletion_withdraws",
    ),
    Rule(
        "times of a pause",
        rule_history.lost_times,
        lambda *_: [],
        PlanningConformance,
        "test_resume_writes_down_what_the_pause_swallowed",
    ),
    Rule(
        "overlap",
        overlap.decide_overlap,
        everybody_runs,
        PlanningConformance,
        "test_skip_makes_no_second_job",
    ),
    Rule(
        "running marker",
        moves.pass_on,
        nothing,
        PlanningConformance,
        "test_every_end_hands_over",
    ),
    Rule(
        "misfire",
        planning._keep,
        lambda *_: 0,
        PlanningConformance,
        "test_run_once_runs_the_latest",
    ),
    Rule(
        "promotion",
        overlap.decide_late,
        lambda *_: set(),
        PlanningConformance,
        "test_late_jobs_are_missed_but_the_latest",
    ),
    Rule(
        "rescue",
        outcomes.decide_loss,
        die_at_once,
        JobConformance,
        "test_first_loss_is_uncharged_and_marked",
    ),
    Rule(
        "backfill",
        extras._look,
        take_up_all,
        PlanningConformance,
        "test_repeated_backfill_takes_nothing_twice",
    ),
    Rule(
        "limits of owners",
        quotas.refuse_full,
        nothing,
        ScheduleConformance,
        "test_full_scopes_refuse_more",
    ),
    Rule(
        "limit of runs",
        runs.settle,
        charge_nothing,
        PlanningConformance,
        "test_planned_runs_are_charged",
    ),
    Rule(
        "hand-over: the ledger decides",
        spans.free_of,
        all_are_free,
        PlanningConformance,
        "test_planner_leaves_backfilled_times_alone",
    ),
    Rule(
        "hand-over: the job's turn",
        hand_over.turn_of,
        lambda *_: "asks",
        PlanningConformance,
        "test_caught_up_runs_one_after_another",
    ),
    Rule(
        "hand-over by HTTP",
        dispatches.decide_lapse,
        post_for_ever,
        DispatchConformance,
        "test_gives_up_in_the_end",
    ),
    Rule(
        "outcomes",
        ledger.follow,
        unchanged,
        PlanningConformance,
        "test_success_from_plan_to_end",
    ),
    Rule(
        "pause after failures",
        failing._all_failed,
        lambda *_: True,
        PlanningConformance,
        "test_success_between_ends_the_row",
    ),
    Rule(
        "retention",
        retention._until,
        forget_now,
        UpkeepConformance,
        "test_newest_of_a_schedule_stays",
    ),
    Rule(
        "erasure",
        erasure._remove_job,
        lambda *_: Erased(),
        UpkeepConformance,
        "test_unstarted_jobs_never_run",
    ),
    Rule(
        "zones",
        zone_times.right_time,
        keep_its_time,
        UpkeepConformance,
        "test_wrong_times_are_moved",
    ),
    Rule(
        "reconcile",
        rule_history.retimed_ms,
        lambda *_: 0,
        ScheduleConformance,
        "test_missing_rows_begin_no_earlier_than_a_resume",
    ),
]
