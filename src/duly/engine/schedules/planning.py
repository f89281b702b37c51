"""Planning: turn due index rows into ledger rows and jobs, and advance the rows.

Rows are held and planned by pure code. Definitions are read without holding them, since a
transaction that writes one holds its row. All reads come first, batched and in lock order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from duly.engine.kinds import (
    DUE,
    OCCURRENCE,
    ROW,
    SCHEDULE,
    StoredRow,
    StoredSchedule,
    key_parts,
    row_key,
)
from duly.engine.schedules import ledger
from duly.engine.schedules.hand_over import (
    Source,
    hand_over,
    hold_markers,
    is_planned,
    new_jobs,
    source_of_row,
)
from duly.engine.schedules.rows import due_rows, in_order, is_due, lanes, move_row
from duly.engine.transaction import Key, Tx
from duly.errors import InvalidInput
from duly.model.index_rows import Advance, IndexRow
from duly.model.jobs import NewJob
from duly.model.plans import NO_DEFINITION, PlanReport, PlanRequest
from duly.model.schedule_writes import ScheduleKey
from duly.rules.checks import check_plan
from duly.rules.planning import Plan, PlannedOccurrence, plan_many, quarantine
from duly.rules.runs import settle


@dataclass(slots=True)
class Planned:
    """Counts of one planning step."""

    rows: int = 0
    planned: int = 0
    missed: int = 0
    skipped: int = 0
    finished: int = 0
    quarantined: int = 0


@dataclass(slots=True)
class RowPlan:
    """A held row with its plan and jobs."""

    item: StoredRow
    plan: Plan
    source: Source | None
    """None: no definition is stored for it."""
    jobs: dict[int, NewJob] = field(default_factory=dict)
    """By nominal time."""
    free: list[PlannedOccurrence] = field(default_factory=list)
    """Occurrences to write: the ledger lacks them, or has them as free."""
    edited_at_ms: int | None = None
    """When the definition was last written; None: no definition is stored for it."""

    @property
    def is_after_edits(self) -> bool:
        """Return whether the ledger cannot have these times yet, so that it need not be read.

        True if they are on time and after the last edit. A row moved back over an outage, or whose
        spread an edit widened, may meet times that the ledger already has.
        """
        first_ms = self.row.nominal_ms
        is_later = self.edited_at_ms is not None and first_ms > self.edited_at_ms
        return is_later and all(each.reason is None for each in self.plan.occurrences)

    @property
    def row(self) -> IndexRow:
        """Return the row as it was read."""
        return self.item.row


def plan_occurrences(tx: Tx, request: PlanRequest) -> PlanReport:
    """Plan up to `limit` due rows of hand-over `jobs`; return the counts and the next run time."""
    check_plan(request)
    until_ms = tx.now_ms + request.look_ahead_ms
    among = lanes(tx, "jobs", request.flows)
    done = plan_rows(tx, due_rows(tx, among, until_ms, request.limit), until_ms)
    first = tx.peek_first_among(DUE, among)
    return PlanReport(
        rows=done.rows,
        planned=done.planned,
        missed=done.missed,
        skipped=done.skipped,
        finished=done.finished,
        quarantined=done.quarantined,
        next_run_at_ms=None if first is None else first.row.run_at_ms,
        now_ms=tx.now_ms,
    )


def plan_soon(tx: Tx, keys: Iterable[ScheduleKey], look_ahead_ms: int | None = None) -> Planned:
    """Plan the rows of keys that are due within `look_ahead_ms` (None: the store's setting)."""
    ahead_ms = tx.planning.look_ahead_ms if look_ahead_ms is None else look_ahead_ms
    return plan_keys(tx, keys, tx.now_ms + ahead_ms)


def plan_keys(tx: Tx, keys: Iterable[ScheduleKey], until_ms: int) -> Planned:
    """Plan the rows of keys that have hand-over `jobs` and are due by an instant."""
    items = tx.get_many(ROW, map(key_parts, keys)).values()
    return plan_rows(tx, [each for each in items if is_due(each, "jobs", until_ms)], until_ms)


def plan_rows(tx: Tx, items: Iterable[StoredRow], until_ms: int) -> Planned:
    """Plan held rows whose run time is not after `until_ms`; return the counts."""
    steps = _made(tx, in_order(items), until_ms)
    hold_ending(tx, steps)
    hold_free(tx, steps)
    hold_markers(tx, (job for step in steps for job in step.jobs.values()))
    done = Planned(rows=len(steps))
    for step in steps:
        if step.source is not None:
            handed = hand_over(tx, step.source, step.free, step.jobs)
            done.planned += handed.planned
            done.missed += handed.missed
            done.skipped += handed.skipped
        plan = settle(step.row, step.plan, len(step.jobs))
        done.quarantined += plan.error is not None
        done.finished += plan.error is None and plan.next_nominal_ms is None
        move_row(tx, step.item, advance_of(step.row, plan))
    return done


def definitions_of(tx: Tx, items: Sequence[StoredRow]) -> dict[Key, StoredSchedule]:
    """Return the stored definitions of held rows by their keys, in one read."""
    rows: dict[Key, IndexRow] = {key_parts(row_key(item.row)): item.row for item in items}
    found = tx.peek_many(SCHEDULE, rows)
    return {key: each for key, each in found.items() if each.schedule.id == rows[key].schedule_id}


def _made(tx: Tx, items: Sequence[StoredRow], until_ms: int) -> list[RowPlan]:
    """Return the plans of rows with their jobs.

    A row that cannot be converted to jobs is quarantined; otherwise it would stay due for ever and
    block the rows after it.
    """
    definitions = definitions_of(tx, items)
    plans = plan_many([item.row for item in items], tx.now_ms, until_ms)
    # Draw all ids at once, in row order: jobs with the same run time run in id order.
    ids = iter(tx.new_ids("job_", sum(is_planned(each) for one in plans for each in one[0])))
    steps: list[RowPlan] = []
    for item, plan in zip(items, plans, strict=True):
        stored = definitions.get(key_parts(row_key(item.row)))
        if stored is None:
            unknown = Plan((), None, None, item.row.runs_left, NO_DEFINITION)
            steps.append(RowPlan(item, unknown, None))
            continue
        source = source_of_row(item, stored.schedule.definition)
        jobs: dict[int, NewJob] = {}
        try:
            jobs = new_jobs(tx, source, plan.occurrences, ids)
        except InvalidInput as error:
            plan = quarantine(item.row, str(error))  # noqa: PLW2901
        step = RowPlan(item, plan, source, jobs, edited_at_ms=stored.schedule.updated_at_ms)
        steps.append(step)
    return steps


def hold_ending(tx: Tx, steps: Iterable[RowPlan]) -> None:
    """Hold the definitions that may be written: those that end or count runs."""
    tx.get_many(
        SCHEDULE,
        [
            key_parts(row_key(step.row))
            for step in steps
            if step.plan.next_nominal_ms is None or step.row.runs_left is not None
        ],
    )


def hold_free(tx: Tx, steps: Sequence[RowPlan]) -> None:
    """Find and hold the occurrences that the ledger lacks; drop the jobs of the others."""
    for step in steps:
        occurrences = step.plan.occurrences
        if step.is_after_edits:
            step.free = list(occurrences)
        else:
            step.free = ledger.free_ones(tx, step.row.trigger, occurrences)
    keys = [(each.schedule_id, each.nominal_ms) for step in steps for each in step.free]
    taken = {key for key, each in tx.get_many(OCCURRENCE, keys).items() if ledger.is_taken(each)}
    for step in steps:
        step.free = [each for each in step.free if (each[0], each.nominal_ms) not in taken]
        free = {each.nominal_ms for each in step.free}
        step.jobs = {ms: job for ms, job in step.jobs.items() if ms in free}


def advance_of(row: IndexRow, plan: Plan) -> Advance:
    """Return the advance of a row according to its plan."""
    return Advance(
        row.schedule_id, plan.next_nominal_ms, plan.next_run_at_ms, plan.runs_left, 0, plan.error
    )
