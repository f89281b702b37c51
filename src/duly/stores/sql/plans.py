"""Stations 4 and 5: from due rows to jobs, in one transaction.

Rows are locked past other planners' locks and planned in pure code; ledger, jobs and advance are
written in bulk. The ledger decides: an occurrence that it has already makes no second job, whoever
planned it, so a lost answer or an edit that sets a row back does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import select

from duly.errors import InvalidInput
from duly.ids import new_id
from duly.jobs import JobId, NewJob
from duly.ledger import OccurrenceState
from duly.occurrences import TRIGGER_VERSION, Moves
from duly.plan_store import MAX_PLAN, NO_DEFINITION, PlanReport, PlanRequest
from duly.planning import Plan, PlannedOccurrence, plan_many, policies_of
from duly.schedules import ScheduleId
from duly.scopes import Scope, workspace_of
from duly.stores.sql import index, ledger
from duly.stores.sql.db import Db, tuples

MAX_LOOK_AHEAD_MS = 86_400_000


class _Row(NamedTuple):
    """A due row with what it goes by, and its schedule's document."""

    row_id: int
    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    trigger: str
    policies: str
    body: str | None
    nominal_ms: int
    run_at_ms: int
    runs_left: int | None


class _Body(msgspec.Struct):
    """What a job needs of a definition."""

    action: str
    input: msgspec.Raw = msgspec.Raw(b"null")
    workspace: str | None = None


def plan_occurrences(db: Db, request: PlanRequest) -> PlanReport:
    """Take due rows; write ledger, jobs and advance."""
    _check(request)
    now_ms = db.now_ms()
    until_ms = now_ms + request.look_ahead_ms
    rows = _due(db, request, until_ms)
    known = [row for row in rows if row.body is not None]
    plans = plan_many(known, now_ms, until_ms)
    hands = [_Hand(row, plan) for row, plan in zip(known, plans, strict=True)]
    planned, missed = _hand_over(db, hands, now_ms)
    hands += [_Hand(row, _unknown(row)) for row in rows if row.body is None]
    _move(db, hands, now_ms)
    ended = [hand.plan for hand in hands if hand.plan.next_run_at_ms is None]
    return PlanReport(
        rows=len(rows),
        planned=planned,
        missed=missed,
        finished=sum(plan.error is None for plan in ended),
        quarantined=sum(plan.error is not None for plan in ended),
        next_run_at_ms=_next(db, request),
        now_ms=now_ms,
    )


def _unknown(row: _Row) -> Plan:
    return Plan((), None, None, row.runs_left, NO_DEFINITION)


def _move(db: Db, hands: Sequence[_Hand], now_ms: int) -> None:
    """Let the rows go where their plans say."""
    if not hands:
        return
    moves = Moves(
        [hand.plan.next_nominal_ms for hand in hands],
        [hand.plan.next_run_at_ms for hand in hands],
        [hand.plan.runs_left for hand in hands],
        [0] * len(hands),
        {i: hand.plan.error for i, hand in enumerate(hands) if hand.plan.error is not None},
    )
    numbers = [hand.row.row_id for hand in hands]
    index.write_moves(db, numbers, [hand.row.schedule_id for hand in hands], moves, now_ms)


def _check(request: PlanRequest) -> None:
    if not 1 <= request.limit <= MAX_PLAN:
        raise InvalidInput(f"limit is {request.limit}; allowed: 1 to {MAX_PLAN}")
    if not 0 <= request.look_ahead_ms <= MAX_LOOK_AHEAD_MS:
        raise InvalidInput(
            f"look_ahead_ms is {request.look_ahead_ms}; allowed: 0 to {MAX_LOOK_AHEAD_MS}"
        )


def _due(db: Db, request: PlanRequest, until_ms: int) -> list[_Row]:
    """Rows that are ours now, in order, with rules and documents as they stand after that."""
    flows = "" if request.flows is None else "AND flow IN :flows "
    given = {} if request.flows is None else {"flows": list(request.flows)}
    locked = db.run(
        "SELECT row_id, nominal_ms, run_at_ms, runs_left FROM {p}schedule_index "
        "WHERE run_at_ms <= :until_ms AND hand_over = 'jobs' "
        f"AND trigger_version <= :newest {flows}"
        "ORDER BY run_at_ms, priority DESC, row_id LIMIT :limit {skip}",
        until_ms=until_ms,
        newest=TRIGGER_VERSION,
        limit=request.limit,
        **given,
    )
    times = {row[0]: row for row in tuples(locked)}
    if not times:
        return []
    rules, documents = db.tables.schedule_rules, db.tables.resources
    names = ("row_id", "schedule_id", "flow", "scope", "name", "trigger_json", "policies")
    statement = (
        select(*(rules.c[name] for name in names), documents.c.body)
        .select_from(rules.outerjoin(documents, documents.c.id == rules.c.schedule_id))
        .where(db.dialect.among(rules.c.row_id, list(times)))
    )
    found = {row[0]: row for row in tuples(db.connection.execute(statement))}
    return [_Row._make((*found[number], *time[1:])) for number, time in times.items()]


class _Hand:
    """A row, its plan, and the jobs that the plan makes."""

    def __init__(self, row: _Row, plan: Plan) -> None:
        self.row = row
        try:
            self.jobs = {each: _job(row, each) for each in plan.occurrences if _is_planned(each)}
            self.plan = plan
        except (InvalidInput, msgspec.MsgspecError) as error:
            # What no job can carry would come again for ever, and hold up the rows behind it.
            self.jobs = {}
            self.plan = _quarantine(row, str(error))


def _is_planned(occurrence: PlannedOccurrence) -> bool:
    return occurrence.state is OccurrenceState.PLANNED


def _quarantine(row: _Row, error: str) -> Plan:
    state = OccurrenceState.QUARANTINED
    nominal_ms = row.nominal_ms
    unmade = PlannedOccurrence(
        row.schedule_id, nominal_ms, nominal_ms, 1, row.run_at_ms, state, error
    )
    return Plan((unmade,), None, None, row.runs_left, error)


def _hand_over(db: Db, hands: Sequence[_Hand], now_ms: int) -> tuple[int, int]:
    """Write what the ledger does not have yet, and jobs; how many jobs, and times missed."""
    pairs = [(hand, each) for hand in hands for each in hand.plan.occurrences]
    entries = [
        ledger.values(each, hand.jobs.get(each), now_ms, (hand.row.flow, *hand.row[3:5]))
        for hand, each in pairs
    ]
    taken = ledger.write(db, entries)
    free = [(hand, each) for hand, each in pairs if (each.schedule_id, each.nominal_ms) in taken]
    jobs = [hand.jobs[each] for hand, each in free if each in hand.jobs]
    if jobs:
        db.dialect.add_jobs(db, jobs, foreign=False)
        db.dialect.tell(db, {f"queue:{job.queue}" for job in jobs})
    missed = sum(each.count for _, each in free if each.state is OccurrenceState.MISSED)
    return len(jobs), missed


def _job(row: _Row, occurrence: PlannedOccurrence) -> NewJob:
    body = msgspec.json.decode(row.body or "", type=_Body)
    policies = policies_of(row.policies)
    return NewJob(
        id=JobId(new_id("job_")),
        action=f"{row.flow}.{body.action}",
        input=bytes(body.input).decode(),
        workspace=body.workspace or workspace_of(Scope.parse(row.scope)),
        scope=row.scope,
        priority=policies.priority,
        run_at_ms=occurrence.run_at_ms,
        retry=policies.retry,
        timeout_ms=policies.timeout_ms,
        delivery=policies.delivery,
        schedule_id=row.schedule_id,
        nominal_ms=occurrence.nominal_ms,
    )


def _next(db: Db, request: PlanRequest) -> int | None:
    flows = "" if request.flows is None else "AND flow IN :flows "
    given = {} if request.flows is None else {"flows": list(request.flows)}
    first = db.run(
        "SELECT run_at_ms FROM {p}schedule_index WHERE run_at_ms IS NOT NULL "
        f"AND hand_over = 'jobs' {flows}ORDER BY run_at_ms LIMIT 1",
        **given,
    ).scalar()
    return None if first is None else int(first)
