"""The checks after a simulation: one function for each promise, reading only the record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

from duly.model.jobs import FINAL, Job, JobId, JobState
from duly.model.jobs import may_go as job_may_go
from duly.model.ledger import OPEN, OccurrenceState, outcome_of
from duly.model.ledger import may_go as row_may_go
from duly.testing.simulation.checks.losses import none_dies_for_others, none_together
from duly.testing.simulation.checks.runs import limits_kept
from duly.testing.simulation.checks.times import (
    covered_once,
    nothing_unasked,
    pauses_told,
    policies_kept,
)
from duly.testing.simulation.record import JobChange, Record, Violation
from duly.triggers.durations import duration_text

_AT_WORK = frozenset({JobState.QUEUED, JobState.PROCESSING, JobState.RETRYING})
_S = OccurrenceState
_AGREES: dict[OccurrenceState, frozenset[JobState]] = {
    _S.SUCCEEDED: frozenset({JobState.SUCCEEDED}),
    _S.FAILED: frozenset({JobState.DEAD, JobState.CANCELLED}),
    _S.SKIPPED: frozenset({JobState.CANCELLED}),
    _S.MISSED: frozenset({JobState.CANCELLED}),
    _S.WITHDRAWN: frozenset({JobState.CANCELLED}),
}
"""Allowed final job states, by the state of the occurrence."""


def none_early(record: Record) -> Iterator[Violation]:
    """Yield handlers that began before their run time, by the store's clock."""
    for start in record.starts:
        job = _job_at(record, start.job_id, start.at_ms)
        if job is not None and start.at_ms < job.run_at_ms and job.attempts == 0:
            early_ms = job.run_at_ms - start.at_ms
            yield Violation("early", start.job_id, f"began {duration_text(early_ms)} too soon")


def none_doubled(record: Record) -> Iterator[Violation]:
    """Yield occurrences run by several jobs, and at_most_once jobs with several attempts."""
    ran: dict[tuple[str, int], set[JobId]] = defaultdict(set)
    tries = Counter(start.job_id for start in record.starts)
    for start in record.starts:
        if start.schedule_id is not None and start.nominal_ms is not None:
            ran[start.schedule_id, start.nominal_ms].add(start.job_id)
    for (schedule_id, nominal_ms), jobs in ran.items():
        if len(jobs) > 1:
            yield Violation("doubled", schedule_id, f"{nominal_ms} ran as {len(jobs)} jobs")
    for job_id, count in tries.items():
        last = record.jobs[job_id][0].job
        if count > 1 and last is not None and last.delivery == "at_most_once":
            yield Violation("doubled", job_id, f"at_most_once began {count} times")


def one_job_each(record: Record) -> Iterator[Violation]:
    """Yield occurrences with more than one job that was not cancelled before it began."""
    made: dict[tuple[str, int], list[JobId]] = defaultdict(list)
    for job_id, changes in record.jobs.items():
        job = changes[0].job
        states = {change.job.state for change in changes if change.job is not None}
        is_unbegun = JobState.CANCELLED in states and JobState.PROCESSING not in states
        if job is not None and job.schedule_id and job.nominal_ms is not None and not is_unbegun:
            made[job.schedule_id, job.nominal_ms].append(job_id)
    for (schedule_id, nominal_ms), jobs in made.items():
        if len(jobs) > 1:
            yield Violation("doubled", schedule_id, f"{nominal_ms} has {len(jobs)} jobs")


def never_overlapping(record: Record) -> Iterator[Violation]:
    """Yield overlapping jobs of schedules that do not allow overlap."""
    at_work: dict[str, set[JobId]] = defaultdict(set)
    for changes in _by_step(record):
        # Within one verb one job may end and the next begin, so only the state after it counts.
        for change in changes:
            job = change.job
            if job is not None and job.schedule_id is not None and job.turn is not None:
                busy = at_work[job.schedule_id]
                (busy.add if job.state in _AT_WORK else busy.discard)(job.id)
        for owner in {change.job.schedule_id for change in changes if change.job is not None}:
            if owner is not None and len(at_work[owner]) > 1:
                words = f"{len(at_work[owner])} jobs at {changes[0].at_ms}"
                yield Violation("overlap", owner, words)


def ended_by_holder(record: Record) -> Iterator[Violation]:
    """Yield attempts that were ended with the fence of another claim."""
    for job_id, changes in record.jobs.items():
        for earlier, change in pairwise(changes):
            job, said = earlier.job, record.said.get(change.step)
            if job is None or job.state is not JobState.PROCESSING or said is None:
                continue
            is_ended = change.job is not None and change.job.state != job.state
            if is_ended and (job_id, job.fence) not in said:
                words = f"attempt {job.fence} was ended with another fence"
                yield Violation("fence", job_id, words)


def every_job_ends(record: Record) -> Iterator[Violation]:
    """Yield jobs left scheduled, queued or at work."""
    for job_id, changes in record.jobs.items():
        last = changes[-1].job
        if last is not None and last.state not in FINAL:
            line = " in line" if last.in_line else ""
            yield Violation("unended", job_id, f"of {last.schedule_id} is {last.state}{line}")


def ledger_agrees(record: Record) -> Iterator[Violation]:
    """Yield occurrences whose ledger row does not match their job, or is still open."""
    for (schedule_id, nominal_ms), row in record.last_rows().items():
        if row.state in OPEN:
            yield Violation("ledger", schedule_id, f"{nominal_ms} is still {row.state} at the end")
        if row.job_id is None:
            if row.state in (_S.SUCCEEDED, _S.FAILED):
                yield Violation("ledger", schedule_id, f"{nominal_ms} {row.state} without a job")
            continue
        job = _last_job(record, row.job_id)
        if job.state in FINAL and job.state not in _AGREES.get(row.state, FINAL):
            words = f"{nominal_ms} is {row.state}, its job {job.state}"
            yield Violation("ledger", schedule_id, words)
        if (job.schedule_id, job.nominal_ms) != (schedule_id, nominal_ms):
            yield Violation("ledger", schedule_id, f"{nominal_ms} has the job of {job.nominal_ms}")


def markers_free(record: Record) -> Iterator[Violation]:
    """Yield running markers held by jobs that have ended."""
    for schedule_id, job_id in record.store.tables.running.items():
        if _last_job(record, job_id).state in FINAL:
            yield Violation("marker", schedule_id, f"held by {job_id}, which has ended")


def histories_whole(record: Record) -> Iterator[Violation]:
    """Yield job histories with gaps, forbidden transitions, or states that were not recorded."""
    for job_id, events in record.events.items():
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            yield Violation("history", job_id, "its events have a gap")
        states = [event.state for event in events]
        for one, other in pairwise(states):
            if not job_may_go(one, other):
                yield Violation("history", job_id, f"went from {one} to {other}")
        seen = [change.job.state for change in record.jobs[job_id] if change.job is not None]
        if not _is_path(seen, states):
            yield Violation("history", job_id, f"seen as {seen}, recorded as {states}")


def metrics_equal(record: Record) -> Iterator[Violation]:
    """Yield occurrence metrics that differ from the ledger."""
    rows = record.last_rows().values()
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row.flow, outcome_of(row.state, row.reason)] += row.count
    for flow, outcome in sorted(counts.keys() | record.metrics.keys()):
        told, found = record.metrics.get((flow, outcome), 0), counts[flow, outcome]
        if told != found:
            words = f"{outcome}: metrics report {told}, the ledger has {found}"
            yield Violation("metrics", flow, words)


def ledger_moves(record: Record) -> Iterator[Violation]:
    """Yield forbidden transitions of ledger rows; only a backfill may change a closed one."""
    for (schedule_id, nominal_ms), changes in record.rows.items():
        state: OccurrenceState | None = None
        for _, row, is_extra, _ in changes:
            target = None if row is None else row.state
            if target is not None and target != state:
                is_over = state in (_S.SKIPPED, _S.MISSED) and not is_extra
                # An edit plans due times by the old rule and withdraws them in one step.
                via_plan = target is _S.WITHDRAWN and row_may_go(state, _S.PLANNED)
                if is_over or not (via_plan or row_may_go(state, target)):
                    words = f"{nominal_ms} went from {state} to {target}"
                    yield Violation("ledger", schedule_id, words)
            state = target


def loops_last(record: Record) -> Iterator[Violation]:
    """Yield loops that ended with an error."""
    for node, error in record.errors:
        yield Violation("error", node, error)


CHECKS: tuple[Callable[[Record], Iterator[Violation]], ...] = (
    covered_once,
    nothing_unasked,
    policies_kept,
    pauses_told,
    limits_kept,
    none_early,
    none_doubled,
    one_job_each,
    never_overlapping,
    ended_by_holder,
    none_together,
    none_dies_for_others,
    every_job_ends,
    ledger_agrees,
    metrics_equal,
    ledger_moves,
    markers_free,
    histories_whole,
    loops_last,
)
"""All checks, in the order of their reports."""


def violations(record: Record) -> list[Violation]:
    """Return all violations."""
    return [each for check in CHECKS for each in check(record)]


def _by_step(record: Record) -> Iterator[list[JobChange]]:
    """Yield the changes of jobs, grouped by verb."""
    for _, changes in groupby(record.changes, key=lambda change: change.step):
        yield list(changes)


def _job_at(record: Record, job_id: JobId, at_ms: int) -> Job | None:
    """Return the job as it was at a time, or None."""
    found = [change.job for change in record.jobs[job_id] if change.at_ms <= at_ms]
    return found[-1] if found else None


def _last_job(record: Record, job_id: JobId) -> Job:
    """Return the last known value of a job, pruned or not."""
    return next(change.job for change in reversed(record.jobs[job_id]) if change.job is not None)


def _is_path(seen: list[JobState], told: list[JobState]) -> bool:
    """Return whether the states seen between verbs are a subsequence of the recorded events."""
    rest = iter(told)
    last: JobState | None = None
    for state in seen:
        if state != last and state not in rest:
            return False
        last = state
    return True
