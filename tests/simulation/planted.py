"""Bugs that the simulation must find, planted into the engine or the memory store one at a time.

Each is a plausible mistake in a store: two transactions where one is needed, a missing condition,
an extra column in a key, a marker that is not passed on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from duly.clock import Clock
from duly.engine.jobs import jobs, moves
from duly.engine.kinds import MARKER, OCCURRENCE
from duly.engine.schedules import hand_over, ledger, overlap, planning, withdrawals
from duly.engine.transaction import Tx
from duly.model.index_rows import Advance, IndexRow
from duly.model.jobs import Job, JobId, JobState
from duly.model.ledger_counts import OccurrenceCounts, OutcomeCount
from duly.model.plans import PlanReport, PlanRequest, PlanSettings
from duly.model.schedules import Definition
from duly.model.stored_jobs import MAX_SWEEP
from duly.rules import edits
from duly.rules.outcomes import Loss, Released, decide_loss
from duly.rules.overlap import Asking, OverlapDecision, decide_overlap
from duly.rules.planning import Plan, PlannedOccurrence, plan_many
from duly.rules.runs import runs_after_edit
from duly.runtime import Worker
from duly.runtime.worker import slots
from duly.testing.simulation import simulate
from duly.testing.simulation.people import FLOW
from duly.testing.simulation.record import WatchedStore
from duly.testing.simulation.world import MakeStore

SEEDS_MAX = 120
STEP_S = 0.5
"""The time between two steps that should be one transaction."""
_advance_of = planning.advance_of
_move = moves.move
_release_expired = jobs.release_expired
_promote_due = jobs.promote_due
_hold_free = planning.hold_free


class AdvancesFirst(WatchedStore):
    """Advances the rows in one transaction and writes occurrences and jobs in the next."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        before = self.tables.copy()
        report = await super().plan_occurrences(request)
        if not report.planned:
            return report
        after = self.tables
        made = {each: job for each, job in after.jobs.items() if each not in before.jobs}
        rows = {place: row for place, row in after.ledger.items() if place not in before.ledger}
        events = {each: after.job_events[each] for each in made}
        for place in rows:
            del after.ledger[place]
        for job_id in made:
            del after.jobs[job_id], after.job_events[job_id]
        after.running = before.running
        await asyncio.sleep(STEP_S)
        self.tables.ledger.update(rows)
        self.tables.jobs.update(made)
        self.tables.job_events.update(events)
        return report


class ComparesNothing(WatchedStore):
    """Restores rows as it read them before a pause, and does not check the ledger."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        read = dict(self.tables.rows)
        await asyncio.sleep(STEP_S)
        self.tables.rows.update({key: row for key, row in read.items() if key in self.tables.rows})
        return await super().plan_occurrences(request)


def _all_free(tx: Tx, steps: Sequence[planning.RowPlan]) -> None:
    for step in steps:
        step.free = list(step.plan.occurrences)
        _hold(tx, step)


def _hold(tx: Tx, step: planning.RowPlan) -> None:
    tx.get_many(OCCURRENCE, [(each.schedule_id, each.nominal_ms) for each in step.free])


def _by_run_time(tx: Tx, steps: Sequence[planning.RowPlan]) -> None:
    """Use the run time, which includes the spread, in the key of the ledger."""
    _hold_free(tx, steps)
    for step in steps:
        step.jobs = {
            job.run_at_ms or 0: replace(job, nominal_ms=job.run_at_ms) for job in step.jobs.values()
        }
        step.free = [
            each if each.until_ms != each.nominal_ms else _moved(each) for each in step.free
        ]
        _hold(tx, step)


def _moved(each: PlannedOccurrence) -> PlannedOccurrence:
    return each._replace(nominal_ms=each.run_at_ms, until_ms=each.run_at_ms)


def _overreaching(tx: Tx, steps: Sequence[planning.RowPlan]) -> None:
    _hold_free(tx, steps)
    for step in steps:
        step.free = [
            each._replace(nominal_ms=each.nominal_ms - (each.until_ms - each.nominal_ms))
            for each in step.free
        ]


def _keep_marker(_tx: Tx, _job: Job) -> None:
    """Keep the running marker instead of passing it on."""


def _drop_marker(tx: Tx, job: Job) -> None:
    """Delete the running marker without starting the next job in line."""
    marker = tx.get(MARKER, job.schedule_id or "")
    if marker is not None and marker.job_id == job.id:
        tx.delete(MARKER, marker.schedule_id)


def _held_by_anybody(tx: Tx, job_id: JobId, _fence: int) -> Job | None:
    job = moves.get(tx, job_id)
    return job if job is not None and job.state is JobState.PROCESSING else None


def _withdraw_nothing(*_: object, **__: object) -> list[object]:
    return []


def _all_late(rows: Sequence[IndexRow], now_ms: int, until_ms: int) -> list[Plan]:
    return plan_many(rows, now_ms + 120_000, until_ms)


class _Ahead:
    """A transaction with a clock that is ahead."""

    def __init__(self, tx: Tx, ms: int) -> None:
        self._tx = tx
        self.now_ms = tx.now_ms + ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


def _early(tx: Tx, queues: Sequence[str], limit: int = MAX_SWEEP) -> int:
    return _promote_due(cast("Tx", _Ahead(tx, 3_000)), queues, limit)


def _uncounted(row: IndexRow, plan: Plan) -> Advance:
    return _advance_of(row, plan._replace(runs_left=row.runs_left))


def _kept_runs(old: Definition, had: int | None, new: Definition, _withdrawn: int) -> int | None:
    return runs_after_edit(old, had, new, 0)


def _lose_silently(tx: Tx, limit: int = MAX_SWEEP) -> int:
    """Change the state without writing an event."""
    facts = list(tx.facts)
    count = _release_expired(tx, limit)
    tx.facts[:] = facts
    return count


def _queue_again(job: Job) -> Loss:
    return Loss((JobState.QUEUED,), job.start_mode, 0)


def _charge_always(job: Job) -> Loss:
    """Charge every loss, regardless of its cause and of whether the job had begun."""
    loss = decide_loss(job)
    if loss.charge == 0 and job.attempts + 1 >= job.max_attempts and JobState.QUEUED in loss.path:
        return Loss((JobState.FAILED, JobState.DEAD), job.start_mode, 1)
    return loss


def _release(why: str, *_: object) -> Released | None:
    return None if why == "lost" else Released()


def _see_nobody(asking: Sequence[Asking], *_: object) -> OverlapDecision:
    return decide_overlap(asking, None)


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


class Refuses(WatchedStore):
    """Raises an error that no store may raise."""

    async def promote_due(self, limit: int = MAX_SWEEP) -> int:
        if self.tables.jobs:
            raise ValueError("the driver says no")
        return await super().promote_due(limit)


class CountsReports(WatchedStore):
    """Counts only what planners report, without what writes plan and promotion decides."""

    def __init__(self, clock: Clock, *, planning: PlanSettings) -> None:
        super().__init__(clock, planning=planning)
        self.reported: Counter[str] = Counter()

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        report = await super().plan_occurrences(request)
        self.reported.update(succeeded=report.planned, missed=report.missed)
        return report

    async def count_occurrences(self) -> OccurrenceCounts:
        found = sorted(self.reported.items())
        return OccurrenceCounts([OutcomeCount(FLOW, *each) for each in found])


Plant = Callable[[pytest.MonkeyPatch], MakeStore]


def store_of(kind: type[WatchedStore]) -> MakeStore:
    """Return a function that creates stores of a class."""

    def make(clock: Clock, planning: PlanSettings) -> WatchedStore:
        return kind(clock, planning=planning)

    return make


def advance_before_ledger(_patch: pytest.MonkeyPatch) -> MakeStore:
    """(a) A crash between the two steps loses the occurrence."""
    return store_of(AdvancesFirst)


def no_compare_and_set(patch: pytest.MonkeyPatch) -> MakeStore:
    """(b) Two planners hand over the same occurrence."""
    patch.setattr(planning, "hold_free", _all_free)
    return store_of(ComparesNothing)


def spread_in_the_key(patch: pytest.MonkeyPatch) -> MakeStore:
    """(c) The ledger does not recognize a nominal time that was planned before."""
    patch.setattr(planning, "hold_free", _by_run_time)
    return store_of(WatchedStore)


def marker_kept(patch: pytest.MonkeyPatch) -> MakeStore:
    """(d) The running marker is never released, so a schedule runs only once."""
    patch.setattr(moves, "give_back", _keep_marker)
    return store_of(WatchedStore)


def marker_not_handed_over(patch: pytest.MonkeyPatch) -> MakeStore:
    """(d) The next job in line is never started."""
    patch.setattr(moves, "give_back", _drop_marker)
    return store_of(WatchedStore)


def fence_ignored(patch: pytest.MonkeyPatch) -> MakeStore:
    """(e) A worker whose lease expired completes the attempt of another worker."""
    patch.setattr(jobs, "held", _held_by_anybody)
    return store_of(WatchedStore)


def withdrawal_forgotten(patch: pytest.MonkeyPatch) -> MakeStore:
    """(f) A job planned ahead runs although the schedule was changed."""
    patch.setattr(withdrawals, "withdraw", _withdraw_nothing)
    return store_of(WatchedStore)


def range_too_long(patch: pytest.MonkeyPatch) -> MakeStore:
    """A row for several missed times starts at a time that has its own row."""
    patch.setattr(planning, "hold_free", _overreaching)
    return store_of(WatchedStore)


def grace_ignored(patch: pytest.MonkeyPatch) -> MakeStore:
    """Occurrences that are on time are treated as misfires."""
    patch.setattr(planning, "plan_many", _all_late)
    return store_of(WatchedStore)


def promoted_early(patch: pytest.MonkeyPatch) -> MakeStore:
    """Jobs are queued before their time."""
    patch.setattr(jobs, "promote_due", _early)
    return store_of(WatchedStore)


def runs_not_counted(patch: pytest.MonkeyPatch) -> MakeStore:
    """`max_runs` has no effect."""
    patch.setattr(planning, "advance_of", _uncounted)
    return store_of(WatchedStore)


def withdrawn_runs_kept(patch: pytest.MonkeyPatch) -> MakeStore:
    """A withdrawal does not give its run back."""
    patch.setattr(edits, "runs_after_edit", _kept_runs)
    return store_of(WatchedStore)


def loss_without_event(patch: pytest.MonkeyPatch) -> MakeStore:
    """A job changes its state without an event."""
    patch.setattr(jobs, "release_expired", _lose_silently)
    return store_of(WatchedStore)


def lost_is_tried_again(patch: pytest.MonkeyPatch) -> MakeStore:
    """An at-most-once job runs again after its worker was lost."""
    patch.setattr(jobs, "decide_loss", _queue_again)
    return store_of(WatchedStore)


def stopped_is_tried_again(patch: pytest.MonkeyPatch) -> MakeStore:
    """An at-most-once job runs again after its worker was stopped."""
    patch.setattr(slots, "_interrupted", _release)
    return store_of(WatchedStore)


def earlier_attempt_goes_on(patch: pytest.MonkeyPatch) -> MakeStore:
    """A process frozen beyond its lease claims a job that it is still running."""
    patch.setattr(Worker, "_without_earlier", lambda _worker, jobs, _again: jobs)
    return store_of(WatchedStore)


def every_loss_is_charged(patch: pytest.MonkeyPatch) -> MakeStore:
    """A job is charged for the loss of a worker that it did not cause."""
    patch.setattr(jobs, "decide_loss", _charge_always)
    return store_of(WatchedStore)


def marker_not_seen(patch: pytest.MonkeyPatch) -> MakeStore:
    """A job takes the running marker although another one holds it."""
    patch.setattr(overlap, "decide_overlap", _see_nobody)
    return store_of(WatchedStore)


def always_a_turn(patch: pytest.MonkeyPatch) -> MakeStore:
    """A schedule that allows overlap is treated as if it did not."""
    patch.setattr(hand_over, "turn_of", lambda *_: "asks")
    patch.setattr(overlap, "_asking", lambda job, _: Asking(job.id, "asks", "skip"))
    return store_of(WatchedStore)


def pause_not_told(patch: pytest.MonkeyPatch) -> MakeStore:
    """Occurrences missed during a pause are not recorded."""
    patch.setattr(withdrawals, "write_pause", _nothing)
    return store_of(WatchedStore)


def hand_not_set_back(patch: pytest.MonkeyPatch) -> MakeStore:
    """Occurrences withdrawn by an edit are never planned again."""
    patch.setattr(edits, "_row_back", lambda edit, _: edit)
    return store_of(WatchedStore)


def ledger_left_behind(patch: pytest.MonkeyPatch) -> MakeStore:
    """The ledger is not updated when a job changes its state."""
    patch.setattr(ledger, "follow_job", _nothing)
    return store_of(WatchedStore)


def counted_by_process(_patch: pytest.MonkeyPatch) -> MakeStore:
    """Metrics are sums of the reports of loops, not counts of what is stored."""
    return store_of(CountsReports)


def unknown_error(_patch: pytest.MonkeyPatch) -> MakeStore:
    """A store error that loops do not expect stops a loop."""
    return store_of(Refuses)


BUGS: tuple[tuple[Plant, frozenset[str]], ...] = (
    (advance_before_ledger, frozenset({"uncovered"})),
    (no_compare_and_set, frozenset({"doubled"})),
    (spread_in_the_key, frozenset({"unasked", "uncovered"})),
    (marker_kept, frozenset({"marker", "unended"})),
    (marker_not_handed_over, frozenset({"unended"})),
    (fence_ignored, frozenset({"fence"})),
    (withdrawal_forgotten, frozenset({"unasked"})),
    (range_too_long, frozenset({"covered"})),
    (grace_ignored, frozenset({"missed"})),
    (promoted_early, frozenset({"early"})),
    (runs_not_counted, frozenset({"limit"})),
    (withdrawn_runs_kept, frozenset({"count"})),
    (loss_without_event, frozenset({"history"})),
    (lost_is_tried_again, frozenset({"doubled"})),
    (stopped_is_tried_again, frozenset({"doubled"})),
    (earlier_attempt_goes_on, frozenset({"together"})),
    (every_loss_is_charged, frozenset({"innocent"})),
    (marker_not_seen, frozenset({"overlap"})),
    (always_a_turn, frozenset({"skipped"})),
    (pause_not_told, frozenset({"pause"})),
    (hand_not_set_back, frozenset({"forgotten", "uncovered"})),
    (ledger_left_behind, frozenset({"ledger"})),
    (counted_by_process, frozenset({"metrics"})),
    (unknown_error, frozenset({"error"})),
)
"""Each bug with the promises that it breaks; the simulation must report one of them."""


def seeds_until_caught(plant: Plant, promises: frozenset[str]) -> tuple[int | None, set[str]]:
    """Return the seeds needed until one of the promises is broken, and all broken promises."""
    broken: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        make_store = plant(patch)
        for seed in range(SEEDS_MAX):
            broken |= {each.promise for each in simulate(seed, make_store).violations}
            if broken & promises:
                return seed + 1, broken
    return None, broken
