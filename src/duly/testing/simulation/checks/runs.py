"""What must hold of limits on runs: a second count, from the rows of the ledger alone.

A row that is handed over is charged; a withdrawal gives it back; nothing else changes the count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedules import ScheduleId
from duly.testing.simulation.record import Record, RowChange, Violation

_S = OccurrenceState
_FREE = frozenset({_S.WITHDRAWN, _S.QUARANTINED})
_EDITS = frozenset({"put_schedules", "pause_failing"})
"""Verbs that withdraw, and may decide about the same time anew."""


class _Moment(NamedTuple):
    """What one verb did to a schedule."""

    step: int
    rows: list[tuple[int, RowChange]]
    max_runs: int | None
    """The limit after it."""
    runs_had: int | None
    """The count that is stored after it."""
    is_deleted: bool


class RunCount:
    """How many runs a schedule has had, after each verb that touched it."""

    def __init__(self, record: Record, schedule_id: ScheduleId) -> None:
        self.counts: list[tuple[_Moment, int]] = []
        self._verbs = record.verbs
        charged: dict[int, bool] = {}
        last: dict[int, Occurrence | None] = {}
        limit: int | None = None
        for moment in _moments(record, schedule_id):
            if limit is None:  # without a limit nothing is counted
                charged = {}
            for nominal_ms, change in moment.rows:
                before = charged.get(nominal_ms, False)
                charged[nominal_ms] = self._is_charged(change, last.get(nominal_ms), before)
                last[nominal_ms] = change.row
            if limit is None:
                _leave_out_unlimited(charged, moment)
            limit = moment.max_runs
            self.counts.append((moment, sum(charged.values())))

    def is_used_up(self, step: int) -> bool:
        """Return whether nothing was left after a verb."""
        known = [(moment, count) for moment, count in self.counts if moment.step <= step]
        if not known:
            return False
        moment, count = known[-1]
        return moment.max_runs is not None and count >= moment.max_runs

    def _is_charged(self, change: RowChange, earlier: Occurrence | None, before: bool) -> bool:
        """Return whether a row is charged after a change; `before`: whether it was."""
        row, is_edit = change.row, self._verbs[change.step] in _EDITS
        if row is None or change.is_extra:
            # A backfill that takes up a skipped time does not give its run back.
            return before
        if row.state is _S.WITHDRAWN:
            return False
        if row.state is _S.MISSED:
            # An edit withdraws a time and lets the policy decide anew; a worker that finds it too
            # late gives nothing back.
            return before and not is_edit
        # An edit may withdraw a time and plan it again in one step: then it has another job.
        is_again = is_edit and earlier is not None and row.job_id != earlier.job_id
        is_new = earlier is None or earlier.state in _FREE or is_again
        return before or (is_new and row.state is not _S.QUARANTINED)


def _leave_out_unlimited(charged: dict[int, bool], moment: _Moment) -> None:
    """Leave out what the write which set a limit planned before that, by the old definition.

    The record cannot tell it from what the new one planned, if both were skipped.
    """
    excess = sum(charged.values()) - (moment.runs_had or 0)
    rows = [(ms, change.row) for ms, change in moment.rows if change.row is not None]
    skipped = [ms for ms, row in rows if row.state is _S.SKIPPED and charged[ms]]
    charged.update(dict.fromkeys(skipped[: max(0, excess)], False))


def limits_kept(record: Record) -> Iterator[Violation]:
    """No schedule runs more often than its max_runs, and the count stored with it is right."""
    for schedule_id in record.schedules:
        last, is_told = 0, False
        for moment, count in RunCount(record, schedule_id).counts:
            if moment.max_runs is None or moment.is_deleted:
                last = 0
                continue
            if count > last and count > moment.max_runs:
                words = f"{count} runs of {moment.max_runs}"
                yield Violation("limit", schedule_id, words)
            if count != moment.runs_had and not is_told:
                is_told = True
                words = f"{count} runs, the schedule says {moment.runs_had} at {moment.step}"
                yield Violation("count", schedule_id, words)
            last = count


def _moments(record: Record, schedule_id: ScheduleId) -> Iterator[_Moment]:
    """What verbs did to a schedule, in their order."""
    rows = [
        (change.step, nominal_ms, change)
        for (owner, nominal_ms), changes in record.rows.items()
        if owner == schedule_id
        for change in changes
    ]
    by_step = {
        step: [(nominal_ms, change) for _, nominal_ms, change in found]
        for step, found in groupby(sorted(rows, key=lambda each: each[:2]), key=lambda e: e[0])
    }
    schedules = {each.step: each.schedule for each in record.schedules[schedule_id]}
    max_runs: int | None = None
    runs_had: int | None = None
    is_deleted = False
    for step in sorted({*by_step, *schedules}):
        if step in schedules:
            schedule = schedules[step]
            is_deleted = schedule is None
            if schedule is not None:
                max_runs, runs_had = schedule.definition.max_runs, schedule.runs_had
        yield _Moment(step, by_step.get(step, []), max_runs, runs_had, is_deleted)
