"""Checks of limits on runs, by an independent count of ledger rows.

A row that is handed over is charged; a withdrawal refunds it; nothing else changes the count.
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
"""Verbs that withdraw occurrences, and may plan the same time again."""


class _Moment(NamedTuple):
    """The changes of one verb to one schedule."""

    step: int
    rows: list[tuple[int, RowChange]]
    max_runs: int | None
    """The limit after the verb."""
    runs_had: int | None
    """The stored count after the verb."""
    is_deleted: bool


class RunCount:
    """The number of runs of a schedule after each verb that changed it."""

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
        """Return whether the limit was used up after a verb."""
        known = [(moment, count) for moment, count in self.counts if moment.step <= step]
        if not known:
            return False
        moment, count = known[-1]
        return moment.max_runs is not None and count >= moment.max_runs

    def _is_charged(self, change: RowChange, earlier: Occurrence | None, before: bool) -> bool:
        """Return whether a row is charged after a change; `before` states whether it was."""
        row, is_edit = change.row, self._verbs[change.step] in _EDITS
        if row is None or change.is_extra:
            # A backfill of a skipped time does not refund its run.
            return before
        if row.state is _S.WITHDRAWN:
            return False
        if row.state is _S.MISSED:
            # An edit withdraws a time and applies the policy again; a claim that finds it too
            # late refunds nothing.
            return before and not is_edit
        # An edit may withdraw a time and plan it again in one step: then it has another job.
        is_again = is_edit and earlier is not None and row.job_id != earlier.job_id
        is_new = earlier is None or earlier.state in _FREE or is_again
        return before or (is_new and row.state is not _S.QUARANTINED)


def _leave_out_unlimited(charged: dict[int, bool], moment: _Moment) -> None:
    """Uncharge skipped times that the write which set the limit planned by the old definition.

    The record cannot distinguish them from skipped times of the new definition.
    """
    excess = sum(charged.values()) - (moment.runs_had or 0)
    rows = [(ms, change.row) for ms, change in moment.rows if change.row is not None]
    skipped = [ms for ms, row in rows if row.state is _S.SKIPPED and charged[ms]]
    charged.update(dict.fromkeys(skipped[: max(0, excess)], False))


def limits_kept(record: Record) -> Iterator[Violation]:
    """Yield schedules that ran more often than their max_runs, or whose stored count is wrong."""
    for schedule_id in record.schedules:
        last, is_notified = 0, False
        for moment, count in RunCount(record, schedule_id).counts:
            if moment.max_runs is None or moment.is_deleted:
                last = 0
                continue
            if count > last and count > moment.max_runs:
                words = f"{count} runs of {moment.max_runs}"
                yield Violation("limit", schedule_id, words)
            if count != moment.runs_had and not is_notified:
                is_notified = True
                words = f"{count} runs, the schedule stores {moment.runs_had} at {moment.step}"
                yield Violation("count", schedule_id, words)
            last = count


def _moments(record: Record, schedule_id: ScheduleId) -> Iterator[_Moment]:
    """Yield the changes to a schedule, by verb, in order."""
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
