"""Planning in memory: due rows to ledger, jobs and their next times."""

from __future__ import annotations

from collections.abc import Sequence

from duly.clock import Clock
from duly.errors import InvalidInput
from duly.occurrences import TRIGGER_VERSION, Advance, IndexRow
from duly.plan_store import NO_DEFINITION, PlanReport, PlanRequest, PlanSettings
from duly.planning import Plan, plan_many, quarantine
from duly.runs import settle
from duly.schedules import Definition
from duly.stores.checks import SCHEDULES, check_plan
from duly.stores.memory.hand_over import (
    Source,
    Step,
    free_ones,
    hand_over,
    is_planned,
    new_job,
)
from duly.stores.memory.index import in_order, move_row
from duly.stores.memory.tables import Tables


def new_step(tables: Tables, now_ms: int, settings: PlanSettings, clock: Clock) -> Step:
    """The beginning of a hand-over."""
    documents = (each.document for key, each in tables.documents.items() if key[0] == SCHEDULES)
    bodies = {document.id: document.body for document in documents}
    return Step(tables, now_ms, settings, clock, bodies=bodies)


def plan(step: Step, request: PlanRequest) -> PlanReport:
    """Plan due rows."""
    check_plan(request)
    until_ms = step.now_ms + request.look_ahead_ms
    due = [row for row in _plannable(step.tables, request) if row.run_at_ms <= until_ms]
    rows = due[: request.limit]
    _plan_rows(step, rows, until_ms)
    left = _plannable(step.tables, request)
    return PlanReport(
        rows=len(rows),
        planned=step.planned,
        missed=step.missed,
        skipped=step.skipped,
        finished=step.finished,
        quarantined=step.quarantined,
        next_run_at_ms=left[0].run_at_ms if left else None,
        now_ms=step.now_ms,
    )


def plan_at_once(step: Step, row: IndexRow | None, *, look_ahead_ms: int | None = None) -> None:
    """Plan a row that is being written, if its time comes soon enough."""
    ahead_ms = step.settings.look_ahead_ms if look_ahead_ms is None else look_ahead_ms
    until_ms = step.now_ms + ahead_ms
    if row is not None and _is_plannable(row) and row.run_at_ms <= until_ms:
        _plan_rows(step, [row], until_ms)


def _plannable(tables: Tables, request: PlanRequest) -> list[IndexRow]:
    """Rows that this planner would plan when their time comes, in order."""
    flows = request.flows
    rows = in_order(tables)
    return [row for row in rows if _is_plannable(row) and (flows is None or row.flow in flows)]


def _is_plannable(row: IndexRow) -> bool:
    return row.hand_over == "jobs" and row.trigger_version <= TRIGGER_VERSION


def _plan_rows(step: Step, rows: Sequence[IndexRow], until_ms: int) -> None:
    plans = plan_many(rows, step.now_ms, until_ms)
    step.reserve(sum(is_planned(each) for one in plans for each in one.occurrences))
    for row, planned in zip(rows, plans, strict=True):
        _plan_row(step, row, planned)


def _plan_row(step: Step, row: IndexRow, planned: Plan) -> None:
    body = step.bodies.get(row.schedule_id)
    if body is None:
        _move(step, row, Plan((), None, None, row.runs_left, NO_DEFINITION))
        return
    key = (row.schedule_id, row.flow, row.scope, row.name)
    source = Source(*key, row.policies, Definition.parse(body))
    free = free_ones(step.tables, row.trigger, planned.occurrences)
    try:
        jobs = {each.nominal_ms: new_job(step, source, each) for each in free if is_planned(each)}
    except InvalidInput as error:
        # What no job can carry would come again for ever, and hold up the rows behind it.
        planned, jobs = quarantine(row, str(error)), {}
        free = free_ones(step.tables, row.trigger, planned.occurrences)
    hand_over(step, source, free, jobs)
    _move(step, row, settle(row, planned, len(jobs)))


def _move(step: Step, row: IndexRow, planned: Plan) -> None:
    """Advance the row, or end it."""
    step.quarantined += planned.error is not None
    step.finished += planned.error is None and planned.next_nominal_ms is None
    move = Advance(
        row.schedule_id,
        planned.next_nominal_ms,
        planned.next_run_at_ms,
        planned.runs_left,
        0,
        planned.error,
    )
    move_row(step.tables, row, move, step.now_ms)
