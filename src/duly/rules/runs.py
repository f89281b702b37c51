"""The one rule for `max_runs`: how often a schedule may run. Pure.

A schedule with a limit has a count, `runs_had`, stored beside its definition. An occurrence is
charged in the transaction that hands it over, whoever does that: planner, tick, dispatch or claim.
What becomes of it after that changes nothing, with one exception: a withdrawal gives the run back.
Times swallowed by misfire policy or pause, `run_now` and backfills are not charged. Everything
else is derived: what is left is `max_runs - runs_had`, and a schedule with nothing left is
finished. The same functions serve every store.
"""

from __future__ import annotations

from duly.model.index_rows import trigger_of
from duly.model.schedules import Definition, Schedule
from duly.rules.planning import Plan, Plannable


def runs_left(max_runs: int | None, runs_had: int | None) -> int | None:
    """Return how many runs a limit leaves; None: there is no limit."""
    return None if max_runs is None else max(0, max_runs - (runs_had or 0))


def left_of(schedule: Schedule) -> int | None:
    """Return how many runs a schedule has left, by its stored count; None: no limit."""
    return runs_left(schedule.definition.max_runs, schedule.runs_had)


def count_of(most: int, stored: int | None, row_left: int | None, in_ledger: int = 0) -> int:
    """Return how many runs a schedule with a limit has had.

    `stored` is the count on its document, `row_left` what its index row says is left, None where
    there is no row. A release that knows no stored count charges the row alone: so where the row
    says that more runs were had, it is right. Where neither has a count, the ledger's is taken.
    """
    if row_left is not None:
        return max(stored or 0, most - row_left)
    return in_ledger if stored is None else stored


def known_runs(schedule: Schedule, row_left: int | None, in_ledger: int = 0) -> int | None:
    """The count of a schedule as it stands; None: it has no limit."""
    most = schedule.definition.max_runs
    return None if most is None else count_of(most, schedule.runs_had, row_left, in_ledger)


def runs_after_edit(
    old: Definition, had: int | None, new: Definition, withdrawn: int
) -> int | None:
    """The count under a new definition, after an edit that withdrew so many charged occurrences.

    Another limit is measured against the same count. A schedule without a limit is not counted: a
    limit that is set later begins with zero.
    """
    if new.max_runs is None:
        return None
    if old.max_runs is None:
        return 0
    return max(0, (had or 0) - withdrawn)


def settle(row: Plannable, made: Plan, handed_over: int) -> Plan:
    """A plan of which only so many occurrences were handed over: the ledger had the others.

    Those were charged when they were written. A row that seemed to have used up its runs goes on.
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
