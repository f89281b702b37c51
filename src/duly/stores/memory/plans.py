"""Planning in memory: due rows to ledger, jobs and their next times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from duly.clock import Clock
from duly.errors import InvalidInput
from duly.ids import new_ids
from duly.jobs import Job, JobId, NewJob
from duly.ledger import Occurrence, OccurrenceState
from duly.occurrences import TRIGGER_VERSION, Advance, IndexRow
from duly.plan_store import MAX_PLAN, NO_DEFINITION, PlanReport, PlanRequest
from duly.planning import Plan, PlannedOccurrence, plan_many, policies_of
from duly.schedules import Definition
from duly.scopes import Scope, workspace_of
from duly.stores.checks import SCHEDULES, check_limit
from duly.stores.memory import job_rows, ledger
from duly.stores.memory.index import in_order, move_row
from duly.stores.memory.tables import Tables

MAX_LOOK_AHEAD_MS = 86_400_000

_PLANNED = OccurrenceState.PLANNED
_MISSED = OccurrenceState.MISSED


@dataclass(slots=True)
class Planning:
    """A step in the making."""

    tables: Tables
    now_ms: int
    ids: Iterator[str]
    bodies: Mapping[str, str]
    """Of every schedule, by id."""
    jobs: list[Job] = field(default_factory=list)
    missed: int = 0
    finished: int = 0
    quarantined: int = 0


def plan(
    tables: Tables, now_ms: int, request: PlanRequest, clock: Clock
) -> tuple[PlanReport, list[Job]]:
    """Plan due rows; gives the report, and the jobs made."""
    _check(request)
    until_ms = now_ms + request.look_ahead_ms
    due = [row for row in _plannable(tables, request) if row.run_at_ms <= until_ms]
    rows = due[: request.limit]
    plans = plan_many(rows, now_ms, until_ms)
    most = sum(each.state is _PLANNED for one in plans for each in one.occurrences)
    step = Planning(tables, now_ms, iter(new_ids("job_", most, clock=clock)), _bodies(tables))
    for row, planned in zip(rows, plans, strict=True):
        _plan_row(step, row, planned)
    left = _plannable(tables, request)
    report = PlanReport(
        rows=len(rows),
        planned=len(step.jobs),
        missed=step.missed,
        finished=step.finished,
        quarantined=step.quarantined,
        next_run_at_ms=left[0].run_at_ms if left else None,
        now_ms=now_ms,
    )
    return report, step.jobs


def _check(request: PlanRequest) -> None:
    check_limit(request.limit, MAX_PLAN)
    if not 0 <= request.look_ahead_ms <= MAX_LOOK_AHEAD_MS:
        raise InvalidInput(
            f"look_ahead_ms is {request.look_ahead_ms}; allowed: 0 to {MAX_LOOK_AHEAD_MS}"
        )


def _bodies(tables: Tables) -> dict[str, str]:
    documents = (each.document for key, each in tables.documents.items() if key[0] == SCHEDULES)
    return {document.id: document.body for document in documents}


def _plannable(tables: Tables, request: PlanRequest) -> list[IndexRow]:
    """Rows that this planner would plan when their time comes, in order."""
    return [
        row
        for row in in_order(tables)
        if row.hand_over == "jobs"
        and row.trigger_version <= TRIGGER_VERSION
        and (request.flows is None or row.flow in request.flows)
    ]


def _plan_row(step: Planning, row: IndexRow, planned: Plan) -> None:
    body = step.bodies.get(row.schedule_id)
    if body is None:
        _move(step, row, Plan((), None, None, row.runs_left, NO_DEFINITION))
        return
    free = _free(step.tables, planned)
    try:
        definition = Definition.parse(body)
        jobs = {
            each.nominal_ms: _job(JobId(next(step.ids)), row, definition, each)
            for each in free
            if each.state is _PLANNED
        }
    except InvalidInput as error:
        # What no job can carry would come again for ever, and hold up the rows behind it.
        planned = _quarantine(row, str(error))
        free, jobs = _free(step.tables, planned), {}
    for each in free:
        job = jobs.get(each.nominal_ms)
        if job is not None:
            job_rows.insert_one(step.tables, step.now_ms, job)
            step.jobs.append(step.tables.jobs[job.id].job)
        if each.state is _MISSED:
            step.missed += each.count
        ledger.put(step.tables, _occurrence(row, each, None if job is None else job.id))
    _move(step, row, planned)


def _free(tables: Tables, planned: Plan) -> list[PlannedOccurrence]:
    """What the ledger does not have yet, or has as free."""
    return [
        each
        for each in planned.occurrences
        if not ledger.is_taken(tables, each.schedule_id, each.nominal_ms)
    ]


def _quarantine(row: IndexRow, error: str) -> Plan:
    state = OccurrenceState.QUARANTINED
    unmade = PlannedOccurrence(
        row.schedule_id, row.nominal_ms, row.nominal_ms, 1, row.run_at_ms, state, error
    )
    return Plan((unmade,), None, None, row.runs_left, error)


def _job(
    job_id: JobId, row: IndexRow, definition: Definition, occurrence: PlannedOccurrence
) -> NewJob:
    policies = policies_of(row.policies)
    return NewJob(
        id=job_id,
        action=f"{row.flow}.{definition.action}",
        input=msgspec.json.encode(definition.input).decode(),
        workspace=definition.workspace or workspace_of(Scope.parse(row.scope)),
        scope=row.scope,
        priority=policies.priority,
        retry=policies.retry,
        timeout_ms=policies.timeout_ms,
        delivery=policies.delivery,
        run_at_ms=occurrence.run_at_ms,
        schedule_id=row.schedule_id,
        nominal_ms=occurrence.nominal_ms,
    )


def _occurrence(row: IndexRow, planned: PlannedOccurrence, job_id: JobId | None) -> Occurrence:
    return Occurrence(
        schedule_id=row.schedule_id,
        nominal_ms=planned.nominal_ms,
        until_ms=planned.until_ms,
        count=planned.count,
        run_at_ms=planned.run_at_ms,
        state=planned.state,
        flow=row.flow,
        scope=row.scope,
        name=row.name,
        job_id=job_id,
        reason=planned.reason,
    )


def _move(step: Planning, row: IndexRow, planned: Plan) -> None:
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
