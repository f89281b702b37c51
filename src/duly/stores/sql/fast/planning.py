"""Planning in set statements: the fast path of the engine's planning.

Due rows are locked, skipping those of other planners. For plain rows, ledger rows, jobs and advance
are written in bulk. All others go to the engine in the same transaction: late rows, rows that end
or have a limit on their runs, and rows without a definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import select

from duly.engine.ids import Ids, new_ids
from duly.engine.schedules.planning import Planned, plan_keys
from duly.errors import InvalidInput
from duly.model.index_rows import Moves
from duly.model.jobs import JobId, NewJob
from duly.model.plans import PlanReport, PlanRequest
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import HandOver, ScheduleId
from duly.rules.checks import check_plan
from duly.rules.planning import Plan, plan_many
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.fast import lanes
from duly.stores.sql.fast.hand_over import HandedOver, JobMaker, hand_over
from duly.stores.sql.rows.ledger import Entry, entry_of
from duly.stores.sql.source import transact

_HAND_OVER: tuple[HandOver, ...] = ("jobs",)


class _Row(msgspec.Struct, frozen=True, gc=False):
    """A due row with its rules and its schedule's document."""

    row_id: int
    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    trigger: str
    policies: str
    body: str | None
    edited_at_ms: int | None
    """Time of the document's last update."""
    nominal_ms: int
    run_at_ms: int
    runs_left: int | None
    version: int


def plan_occurrences(db: Db, request: PlanRequest) -> PlanReport:
    """Claim due rows, write their ledger rows and jobs, and advance them."""
    check_plan(request)
    now_ms = db.now_ms()
    db = db.at(now_ms)
    until_ms = now_ms + request.look_ahead_ms
    found = lanes.find(db, _HAND_OVER, request.flows)
    due = lanes.due_among(found, until_ms)
    rows = _locked(db, due, until_ms, request.limit) if due else []
    handed, others = _plan(db, rows, now_ms, until_ms)
    return PlanReport(
        rows=len(rows),
        planned=handed.planned + others.planned,
        missed=others.missed,
        skipped=handed.skipped + others.skipped,
        finished=others.finished,
        quarantined=others.quarantined,
        next_run_at_ms=lanes.next_ms(lanes.find(db, _HAND_OVER, request.flows) if due else found),
        now_ms=now_ms,
    )


def _plan(db: Db, rows: Sequence[_Row], now_ms: int, until_ms: int) -> tuple[HandedOver, Planned]:
    """Plan locked rows: plain ones here, the others by the engine."""
    plans = plan_many(rows, now_ms, until_ms)
    # Draw all ids in row order: jobs of one instant run in the order of their ids.
    ids = iter(new_ids("job_", sum([len(plan.occurrences) for plan in plans])))
    maker = JobMaker(db.planning)
    entries: list[Entry] = []
    jobs: list[NewJob] = []
    plain: list[tuple[_Row, Plan]] = []
    others: list[_Row] = []
    left: list[str] = []
    for row, plan in zip(rows, plans, strict=True):
        own_ids = list(islice(ids, len(plan.occurrences)))
        made = _made(maker, row, plan, own_ids, now_ms) if is_plain(row, plan) else None
        if made is None:
            others.append(row)
            left += own_ids
            continue
        plain.append((row, plan))
        entries += made[0]
        jobs += made[1]
    handed = hand_over(db, entries, jobs)
    _advance(db, plain)
    if not others:
        return handed, Planned()
    keys = [ScheduleKey(row.flow, row.scope, row.name) for row in others]
    return handed, transact(db, Ids(drawn={"job_": left}), plan_keys, keys, until_ms)


def is_plain(row: _Row, plan: Plan) -> bool:
    """Return whether a row is on time and moves to a next time, without a limit on its runs.

    As in `RowPlan.is_after_edits`, its times are later than any range in the ledger.
    """
    return (
        row.body is not None
        and row.edited_at_ms is not None
        and row.nominal_ms > row.edited_at_ms
        and plan.error is None
        and plan.next_run_at_ms is not None
        and row.runs_left is None
        and all(each.reason is None for each in plan.occurrences)
    )


def _made(
    maker: JobMaker, row: _Row, plan: Plan, ids: Sequence[str], now_ms: int
) -> tuple[list[Entry], list[NewJob]] | None:
    """Return the ledger rows and jobs of a plan; None: it cannot be converted to jobs."""
    pairs = zip(plan.occurrences, ids, strict=True)
    entries = [entry_of(each, row, now_ms, JobId(job_id)) for each, job_id in pairs]
    try:
        jobs = [maker.make(each, row.policies, row.body or "") for each in entries if each.job_id]
    except (InvalidInput, msgspec.MsgspecError):
        return None
    return entries, jobs


def _advance(db: Db, plain: Sequence[tuple[_Row, Plan]]) -> None:
    """Move plain rows to their next times."""
    if not plain:
        return
    moves = Moves(
        [plan.next_nominal_ms for _, plan in plain],
        [plan.next_run_at_ms for _, plan in plain],
        [None] * len(plain),
        [0] * len(plain),
        {},
    )
    numbers = [row.row_id for row, _ in plain]
    versions = [row.version for row, _ in plain]
    db.dialect.advance_rows(db, numbers, versions, moves)


def _locked(db: Db, due: Sequence[lanes.Lane], until_ms: int, limit: int) -> list[_Row]:
    """Lock and return due rows in order, with rules and documents read after locking."""
    times = lanes.lock_due(db, due, until_ms, limit)
    return _with_rules(db, {row[0]: row for row in zip(*times, strict=True)})


def _with_rules(db: Db, times: dict[int, tuple[Any, ...]]) -> list[_Row]:
    """Return locked rows, given by number, with their rules and documents."""
    if not times:
        return []
    rules, documents = db.tables.schedule_rules, db.tables.resources
    names = ("row_id", "schedule_id", "flow", "scope", "name", "trigger_json", "policies")
    statement = (
        select(*(rules.c[name] for name in names), documents.c.body, documents.c.updated_at_ms)
        .select_from(rules.outerjoin(documents, documents.c.id == rules.c.schedule_id))
        .where(db.dialect.among(rules.c.row_id, list(times)))
    )
    found = {row[0]: row for row in tuples(db.connection.execute(statement))}
    return [_Row(*found[number], *time[1:]) for number, time in times.items()]
