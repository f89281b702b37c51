"""Accounting for `max_runs`, the limit on runs of a schedule, shared by all stores.

A schedule with a limit stores the count `runs_had` with its definition. An occurrence is charged in
the transaction that hands it over (planner, tick, dispatch or claim); only a withdrawal credits the
run again. Times swallowed by misfire policy or pause, `run_now` and backfills are not charged. Runs
left are `max_runs - runs_had`; at 0 the schedule is finished.
"""

from __future__ import annotations

from duly.model.index_rows import trigger_of
from duly.model.schedules import Definition, Schedule
from duly.rules.planning import Plan, Plannable


def runs_left(max_runs: int | None, runs_had: int | None) -> int | None:
    """Return the runs left of a limit; None: no limit."""
    return None if max_runs is None else max(0, max_runs - (runs_had or 0))


def left_of(schedule: Schedule) -> int | None:
    """Return the runs left of a schedule, by its stored count; None: no limit."""
    return runs_left(schedule.definition.max_runs, schedule.runs_had)


def count_of(most: int, stored: int | None, row_left: int | None, in_ledger: int = 0) -> int:
    """Return how many runs a schedule with a limit has had.

    `stored` is the count of its document, `row_left` the runs left of its index row (None: no row).
    A release without stored counts charges only the row, so the higher count is correct. If neither
    has a count, the ledger's is used.
    """
    if row_left is not None:
        return max(stored or 0, most - row_left)
    return in_ledger if stored is None else stored


def known_runs(schedule: Schedule, row_left: int | None, in_ledger: int = 0) -> int | None:
    """Return the current count of a schedule; None: no limit."""
    most = schedule.definition.max_runs
    return None if most is None else count_of(most, schedule.runs_had, row_left, in_ledger)


def runs_after_edit(
    old: Definition, had: int | None, new: Definition, withdrawn: int
) -> int | None:
    """Return the count after an edit that withdrew `withdrawn` charged occurrences.

    A changed limit keeps the count. A schedule without a limit has no count; a limit set later
    starts at zero.
    """
    if new.max_runs is None:
        return None
    if old.max_runs is None:
        return 0
    return max(0, (had or 0) - withdrawn)


def settle(row: Plannable, made: Plan, handed_over: int) -> Plan:
    """Return the plan corrected to the occurrences handed over; the ledger had the others.

    Those were charged when they were written, so a row that seemed to have no runs left continues.
    """
    if row.runs_left is None or made.error is not None:
        return made
    left = row.runs_left - handed_over
    if left == made.runs_left or made.next_nominal_ms is not None or left <= 0:
        return made._replace(runs_left=left)
    last_ms = made.occurrences[-1].until_ms if made.occurrences else row.nominal_ms - 1
    nominal_ms = trigger_of(row.trigger).next_after_ms(last_ms)
    if nominal_ms is None:
        return made._replace(runs_left=left)
    run_at_ms = nominal_ms + row.run_at_ms - row.nominal_ms
    return made._replace(next_nominal_ms=nominal_ms, next_run_at_ms=run_at_ms, runs_left=left)
