"""Memory stores with one planted bug each in counting runs, each with the case that notices it."""

from typing import Any

from duly.engine.dispatch import dispatches, fires
from duly.engine.schedules import planning, rows, schedules
from duly.engine.upkeep import reconcile
from duly.model.schedules import Definition
from duly.rules import edits
from duly.rules.planning import Plan
from duly.rules.runs import runs_after_edit
from duly.stores import MemoryStore
from duly.testing.conformance import PlanningConformance, StoreConformance
from tests.conformance.broken_overlap import planted


def free_of_charge(*_: object) -> bool:
    return False


def none_had(*_: object) -> int:
    return 0


def nothing_counted(*_: object) -> None:
    """Return no count for the document."""


def as_before(row: Any, made: Plan, _handed_over: int) -> Plan:
    """Charge nothing."""
    return made._replace(runs_left=row.runs_left)


def as_planned(_row: Any, made: Plan, _handed_over: int) -> Plan:
    """Charge also for times that the ledger already had."""
    return made


def keeps_withdrawn(
    old: Definition, had: int | None, new: Definition, withdrawn: int
) -> int | None:
    del withdrawn
    return runs_after_edit(old, had, new, 0)


BROKEN_RUNS: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, PlanningConformance, name)
    for broken, name in (
        (
            planted("DispatchesFreeOfCharge", (fires, "charge_one", free_of_charge)),
            "test_dispatches_are_charged",
        ),
        (
            planted("KeepsRunsOfWithdrawn", (edits, "runs_after_edit", keeps_withdrawn)),
            "test_withdrawn_runs_are_given_back",
        ),
        (
            planted("KeepsRunsOverPauses", (edits, "runs_after_edit", keeps_withdrawn)),
            "test_pause_gives_back_what_has_not_begun",
        ),
        (
            planted("KeepsRunsOfDispatches", (edits, "runs_after_edit", keeps_withdrawn)),
            "test_withdrawn_dispatch_is_given_back",
        ),
        (
            planted("ChargesTwice", (planning, "settle", as_planned)),
            "test_row_set_back_is_not_charged_twice",
        ),
        (
            planted("ChargesTheDispatchedTwice", (planning, "settle", as_planned)),
            "test_time_dispatched_early_is_charged_once",
        ),
        (
            planted("PlansFreeOfCharge", (rows, "known_runs", nothing_counted)),
            "test_planned_runs_are_charged",
        ),
        (
            planted("PostsFreeOfCharge", (dispatches, "settle", as_before)),
            "test_posts_are_charged_once",
        ),
        (
            planted("ForgetsRunsInRepairs", (reconcile, "known_runs", none_had)),
            "test_lost_row_comes_back_with_the_count",
        ),
        (
            planted("ForgetsRunsInEdits", (schedules, "known_runs", none_had)),
            "test_new_limit_is_measured_against_the_same_count",
        ),
        (
            planted("ForgetsRunsInQuarantine", (schedules, "known_runs", none_had)),
            "test_quarantine_keeps_the_count",
        ),
    )
]
