"""Stations 4 and 5: from due rows to jobs, in one transaction.

Rows are locked past other planners' locks and planned in pure code; ledger, jobs and advance are
written in bulk. The ledger decides: an occurrence that it has already makes no second job, whoever
planned it, so a lost answer or an edit that sets a row back does no harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import select

from duly.errors import InvalidInput
from duly.ids import new_ids
from duly.jobs import JobId, NewJob
from duly.ledger import OccurrenceState
from duly.occurrences import Moves
from duly.plan_store import NO_DEFINITION, PlanReport, PlanRequest
from duly.planning import Plan, Plannable, plan_many, quarantine
from duly.runs import settle
from duly.schedules import HandOver, ScheduleId
from duly.stores.checks import check_plan
from duly.stores.spans import free_of
from duly.stores.sql import index, lanes, ledger
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.hand_over import HandedOver, JobMaker, hand_over
from duly.stores.sql.ledger import Entry, entry_of
from duly.stores.sql.runs import Charge, charge

_HAND_OVER: tuple[HandOver, ...] = ("jobs",)
_HANDED_OVER = frozenset({OccurrenceState.PLANNED, OccurrenceState.DISPATCHING})


class _Row(msgspec.Struct, frozen=True, gc=False):
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


def plan_occurrences(db: Db, request: PlanRequest) -> PlanReport:
    """Take due rows; write ledger, jobs and advance."""
    check_plan(request)
    now_ms = db.now_ms()
    db = db.at(now_ms)
    until_ms = now_ms + request.look_ahead_ms
    found = lanes.find(db, _HAND_OVER, request.flows)
    due = lanes.due_among(found, until_ms)
    rows = _locked(db, due, until_ms, request.limit) if due else []
    plans, handed = _plan(db, rows, now_ms, until_ms)
    ended = [plan for plan in plans if plan.next_run_at_ms is None]
    return PlanReport(
        rows=len(rows),
        planned=handed.planned,
        missed=handed.missed,
        skipped=handed.skipped,
        finished=sum(plan.error is None for plan in ended),
        quarantined=sum(plan.error is not None for plan in ended),
        next_run_at_ms=lanes.next_ms(lanes.find(db, _HAND_OVER, request.flows) if due else found),
        now_ms=now_ms,
    )


def plan_at_once(
    db: Db, schedule_ids: Sequence[ScheduleId], now_ms: int, *, look_ahead_ms: int | None = None
) -> None:
    """Plan rows that are ours already, as far as the look-ahead of writes reaches."""
    if not schedule_ids:
        return
    ahead_ms = db.planning.look_ahead_ms if look_ahead_ms is None else look_ahead_ms
    until_ms = now_ms + ahead_ms
    found = db.run(
        "SELECT i.row_id, i.nominal_ms, i.run_at_ms, i.runs_left FROM {p}schedule_index i "
        "JOIN {p}schedule_rules r ON r.row_id = i.row_id WHERE r.schedule_id IN :ids "
        "AND i.run_at_ms <= :until_ms AND i.hand_over = 'jobs' ORDER BY i.row_id",
        ids=list(schedule_ids),
        until_ms=until_ms,
    )
    rows = _with_rules(db, {row[0]: row for row in tuples(found)})
    if rows:
        _plan(db.at(now_ms), rows, now_ms, until_ms)


def _plan(
    db: Db, rows: Sequence[_Row], now_ms: int, until_ms: int
) -> tuple[list[Plan], HandedOver]:
    """Plan locked rows, and write everything."""
    known = [row for row in rows if row.body is not None]
    made = plan_many(known, now_ms, until_ms)
    plans = without_taken(db, known, made)
    entries, jobs = _made(db, known, plans, now_ms)
    handed = hand_over(db, entries, jobs)
    plans = charged(db, known, _whole(made, plans), entries, handed.taken)
    unknown = [row for row in rows if row.body is None]
    plans += [Plan((), None, None, row.runs_left, NO_DEFINITION) for row in unknown]
    _move(db, known + unknown, plans, now_ms)
    return plans, handed


def _whole(made: Sequence[Plan], plans: Sequence[Plan]) -> list[Plan]:
    """The plans as they were made, and those that went to quarantine since."""
    both = zip(made, plans, strict=True)
    return [plan if plan.error is not None else whole for whole, plan in both]


def charged(
    db: Db,
    rows: Sequence[Plannable],
    plans: Sequence[Plan],
    entries: Iterable[Entry],
    taken: Collection[tuple[str, int]],
) -> list[Plan]:
    """Charge what was handed over to the schedules that have a limit; gives where rows go then."""
    limited = {row.schedule_id: row.runs_left for row in rows if row.runs_left is not None}
    if not limited:
        return list(plans)
    handed = Counter(
        each.schedule_id
        for each in entries
        if each.schedule_id in limited
        and each.state in _HANDED_OVER
        and (each.schedule_id, each.nominal_ms) not in taken
    )
    charge(db, {each: Charge(handed[each], left) for each, left in limited.items()})
    both = zip(rows, plans, strict=True)
    return [settle(row, plan, handed[row.schedule_id]) for row, plan in both]


def _made(
    db: Db, rows: Sequence[_Row], plans: list[Plan], now_ms: int
) -> tuple[list[Entry], list[NewJob]]:
    """Ledger rows and jobs of plans; a row whose job cannot be made goes to quarantine instead."""
    # All ids at once: asking the system for chance row by row would cost as much as the job.
    ids = iter(new_ids("job_", sum([len(plan.occurrences) for plan in plans])))
    maker = JobMaker(db.planning)
    entries: list[Entry] = []
    jobs: list[NewJob] = []
    for i, row in enumerate(rows):
        own = [entry_of(each, row, now_ms, JobId(next(ids))) for each in plans[i].occurrences]
        try:
            jobs += [maker.make(each, row.policies, row.body or "") for each in own if each.job_id]
        except (InvalidInput, msgspec.MsgspecError) as error:
            # What no job can carry would come again for ever, and hold up the rows behind it.
            plans[i] = quarantine(row, str(error))
            own = [entry_of(plans[i].occurrences[0], row, now_ms)]
        entries += own
    return entries, jobs


def without_taken(db: Db, rows: Sequence[Plannable], plans: Sequence[Plan]) -> list[Plan]:
    """Plans without times that lie in runs of times the ledger has.

    Only a row that was set back behind an outage comes to them again; those on time never do.
    """
    late = [i for i, plan in enumerate(plans) if any(each.reason is not None for each in plan[0])]
    if not late:
        return list(plans)
    known = ledger.rows_since(db, {rows[i].schedule_id: rows[i].nominal_ms for i in late})
    found = list(plans)
    for i in late:
        standing = known.get(rows[i].schedule_id)
        if standing and plans[i].error is None:
            free = free_of(rows[i].trigger, plans[i].occurrences, standing)
            found[i] = plans[i]._replace(occurrences=tuple(free))
    return found


def _move(db: Db, rows: Sequence[_Row], plans: Sequence[Plan], now_ms: int) -> None:
    """Let the rows go where their plans say."""
    if not rows:
        return
    moves = Moves(
        [plan.next_nominal_ms for plan in plans],
        [plan.next_run_at_ms for plan in plans],
        [plan.runs_left for plan in plans],
        [0] * len(plans),
        {i: plan.error for i, plan in enumerate(plans) if plan.error is not None},
    )
    numbers = [row.row_id for row in rows]
    index.write_moves(db, numbers, [row.schedule_id for row in rows], moves, now_ms)


def _locked(db: Db, due: Sequence[lanes.Lane], until_ms: int, limit: int) -> list[_Row]:
    """Rows that are ours now, in order, with rules and documents as they stand after that."""
    *times, _ = lanes.lock_due(db, due, until_ms, limit)
    return _with_rules(db, {row[0]: row for row in zip(*times, strict=True)})


def _with_rules(db: Db, times: dict[int, tuple[Any, ...]]) -> list[_Row]:
    """Locked rows by their numbers, with what they go by."""
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
    return [_Row(*found[number], *time[1:]) for number, time in times.items()]
