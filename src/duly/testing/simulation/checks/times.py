"""What must hold of times: each is accounted for once, by the policy that was in force.

Compares the ledger with the oracle. A row that stands for a run of times accounts for each time
that the rule of its day had between the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.plans import PAUSED
from duly.model.schedules import Definition, ScheduleId
from duly.testing.simulation.checks.runs import RunCount
from duly.testing.simulation.oracle import (
    FOREVER_MS,
    Expected,
    Stretch,
    expected,
    not_yet_due,
    stretches,
)
from duly.testing.simulation.record import Record, Violation
from duly.triggers import Trigger

_S = OccurrenceState
_PLANNED = frozenset({_S.PLANNED, _S.SKIPPED})
_MISFIRES = frozenset({"run_once", "skip", "catch_up"})


class _Row(NamedTuple):
    """A row as it stands at the end, and the rules of the day it was written."""

    row: Occurrence
    rules: tuple[Trigger, ...]
    is_extra: bool

    def covers(self, nominal_ms: int) -> bool:
        """Whether it accounts for a time."""
        if self.row.nominal_ms == nominal_ms:
            return True
        is_inside = self.row.is_range and self.row.covers(nominal_ms)
        return is_inside and any(_has(rule, nominal_ms) for rule in self.rules)


def covered_once(record: Record) -> Iterator[Violation]:
    """Every time whose run time came while a schedule was active has one row, rightly so."""
    for schedule_id, changes in record.schedules.items():
        rows = _rows(record, schedule_id)
        for stretch in stretches(changes):
            if stretch.definition.enabled:
                last_ms = _last_ms(record, schedule_id, stretch)
                for each in expected(stretch, record.end_ms):
                    if each.nominal_ms <= last_ms:
                        yield from _covered(record, schedule_id, each, rows)


def _covered(
    record: Record, schedule_id: ScheduleId, each: Expected, rows: list[_Row]
) -> Iterator[Violation]:
    covering = [row.row for row in rows if row.covers(each.nominal_ms)]
    if not covering:
        if not is_left_behind(record, schedule_id, each):
            yield Violation("uncovered", schedule_id, f"{each.nominal_ms} has no row")
    elif len(covering) > 1:
        yield Violation("covered", schedule_id, f"{each.nominal_ms} has {len(covering)} rows")
    elif (
        covering[0].state is _S.WITHDRAWN
        and _is_forgotten(record, schedule_id, each)
        and not is_left_behind(record, schedule_id, each)
    ):
        yield Violation("forgotten", schedule_id, f"{each.nominal_ms} was withdrawn and not again")


def is_left_behind(record: Record, schedule_id: ScheduleId, each: Expected) -> bool:
    """Whether a deletion came before any planner got to a time: the index row stood there still."""
    last = record.schedules[schedule_id][-1]
    if last.schedule is not None:
        return False
    before = [hand for hand in record.hands.get(schedule_id, []) if hand.at_ms < last.at_ms]
    return bool(before) and (before[-1].nominal_ms or FOREVER_MS) <= each.nominal_ms


def left_behind(record: Record) -> int:
    """How many times have no row because a deletion came before any planner."""
    count = 0
    for schedule_id, changes in record.schedules.items():
        rows = _rows(record, schedule_id)
        for stretch in stretches(changes):
            if stretch.definition.enabled:
                count += sum(
                    is_left_behind(record, schedule_id, each)
                    and not any(row.covers(each.nominal_ms) for row in rows)
                    for each in expected(stretch, record.end_ms)
                )
    return count


def _is_forgotten(record: Record, schedule_id: ScheduleId, each: Expected) -> bool:
    """Whether a time stayed withdrawn although the schedule still has it."""
    last = record.rows[schedule_id, each.nominal_ms][-1]
    if last.at_ms < each.run_at_ms:
        return True  # the definition that it belongs to came later, or stayed
    known = [one.schedule for one in record.schedules[schedule_id] if one.step <= last.step]
    if not known or known[-1] is None:
        return False
    after = known[-1].definition
    count = RunCount(record, schedule_id)
    if count.is_used_up(last.step) or count.is_used_up(record.steps):
        return False  # the run that it gave back went to another time
    return after.enabled and _has(after.trigger, each.nominal_ms)


def nothing_unasked(record: Record) -> Iterator[Violation]:
    """Every row stands for times that the schedule had, or for something that somebody asked."""
    for schedule_id, changes in record.schedules.items():
        found = stretches(changes)
        wanted = {each.nominal_ms for one in found for each in expected(one, record.end_ms)}
        wanted |= {ms for one in found for ms in _taken_along(record, schedule_id, one)}
        for row, _, is_extra in _rows(record, schedule_id):
            is_due = row.state is not _S.WITHDRAWN and not is_extra
            # A pause is told by the rule that it ended with, whatever was edited meanwhile.
            if is_due and row.reason != PAUSED and row.nominal_ms not in wanted:
                words = f"{row.nominal_ms} is {row.state}, which no rule had then"
                yield Violation("unasked", schedule_id, words)


def _taken_along(record: Record, schedule_id: ScheduleId, stretch: Stretch) -> list[int]:
    """Times that the write which began a stretch took over, and that its definition has too.

    It withdrew them; or they had come and, being spread, were not due, so that nobody had planned
    them yet.
    """
    # A time may be withdrawn and planned again in one step: then its row just changes.
    withdrawn = [
        nominal_ms
        for (owner, nominal_ms), changes in record.rows.items()
        if owner == schedule_id and any(change.at_ms == stretch.since_ms for change in changes[1:])
    ]
    found = stretches(record.schedules[schedule_id])
    before = [each for each in found if each.until_ms == stretch.since_ms]
    spread = [ms for each in before for ms in not_yet_due(each)]
    return [ms for ms in (*withdrawn, *spread) if _has(stretch.definition.trigger, ms)]


def policies_kept(record: Record) -> Iterator[Violation]:
    """What a policy swallowed was its to swallow: missed only when late, skipped by overlap."""
    for (schedule_id, _), changes in record.rows.items():
        state: OccurrenceState | None = None
        for at_ms, row, _, step in changes:
            if row is not None and row.state is not state:
                # An edit goes by the old definition for what has come, by the new one after that.
                asked = _in_force(record, schedule_id, step)
                told = [list(_kept(schedule_id, at_ms, row, each)) for each in asked]
                yield from min(told, key=len, default=[])
            state = None if row is None else row.state


def _kept(
    schedule_id: ScheduleId, at_ms: int, row: Occurrence, definition: Definition
) -> Iterator[Violation]:
    policies = definition.policies
    if row.state is _S.MISSED and row.reason in _MISFIRES:
        run_at_ms = row.run_at_ms + row.until_ms - row.nominal_ms
        if run_at_ms >= at_ms - policies.grace_ms:
            words = f"{row.until_ms} was missed at {at_ms}, within its grace"
            yield Violation("missed", schedule_id, words)
    if row.state is _S.PLANNED and row.reason == "skip":
        yield Violation("missed", schedule_id, f"{row.nominal_ms} was late, and is to run")
    if row.state is _S.SKIPPED and policies.overlap == "allow":
        yield Violation("skipped", schedule_id, f"{row.nominal_ms}, though it may overlap")


def pauses_told(record: Record) -> Iterator[Violation]:
    """Times that came in a pause are missed, once it has ended, or were accounted for before."""
    for schedule_id, changes in record.schedules.items():
        found = stretches(changes)
        rows = _rows(record, schedule_id)
        for pause, following in pairwise(found):
            if pause.definition.enabled or not following.definition.enabled:
                continue
            if RunCount(record, schedule_id).is_used_up(_step_of(record, schedule_id, following)):
                continue  # it had no times that the pause could have swallowed
            for each in expected(pause, record.end_ms):
                count = sum(row.covers(each.nominal_ms) for row in rows)
                if count != 1:
                    words = f"{each.nominal_ms}, in a pause, has {count} rows"
                    yield Violation("pause", schedule_id, words)


def _step_of(record: Record, schedule_id: ScheduleId, stretch: Stretch) -> int:
    """The verb that began a stretch."""
    changes = record.schedules[schedule_id]
    return next(each.step for each in changes if each.at_ms == stretch.since_ms)


def _last_ms(record: Record, schedule_id: ScheduleId, stretch: Stretch) -> int:
    """The last time that a limit on runs left to a schedule, once it had used it up."""
    most = stretch.definition.max_runs
    if most is None:
        return FOREVER_MS
    finished_at = [
        at_ms
        for at_ms, schedule, _ in record.schedules[schedule_id]
        if stretch.since_ms <= at_ms <= stretch.until_ms
        and schedule is not None
        and schedule.state == "finished"
    ]
    if finished_at:
        planned = _taken(record, schedule_id, stretch.since_ms, finished_at[0], _PLANNED)
        return max(planned, default=0)
    # The write that ends a stretch may use the limit up, and give back what had not begun. So may
    # a later one, where no planner had come to the times of the stretch before it ended.
    until_ms = _passed_at_ms(record, schedule_id, stretch)
    taken = _taken(record, schedule_id, 0, until_ms, _PLANNED | {_S.WITHDRAWN})
    return FOREVER_MS if len(taken) < most else max(taken)


def _passed_at_ms(record: Record, schedule_id: ScheduleId, stretch: Stretch) -> int:
    """Return when the index row had passed every time of a stretch."""
    offset_ms = stretch.definition.trigger.offset_ms
    for hand in record.hands.get(schedule_id, []):
        run_at_ms = FOREVER_MS if hand.nominal_ms is None else hand.nominal_ms + offset_ms
        if hand.at_ms >= stretch.until_ms and run_at_ms > stretch.until_ms:
            return hand.at_ms
    return max(record.end_ms, stretch.until_ms)


def _taken(
    record: Record,
    schedule_id: ScheduleId,
    since_ms: int,
    until_ms: int,
    states: frozenset[OccurrenceState],
) -> list[int]:
    """The schedule's own times whose row came to one of the states between two times."""
    return [
        nominal_ms
        for (owner, nominal_ms), changes in record.rows.items()
        if owner == schedule_id
        and any(
            since_ms <= at_ms <= until_ms
            and row is not None
            and row.state in states
            and not is_extra
            for at_ms, row, is_extra, _ in changes
        )
    ]


def _rows(record: Record, schedule_id: ScheduleId) -> list[_Row]:
    """The ledger of a schedule at the end."""
    found = []
    for (owner, _), changes in record.rows.items():
        _, row, is_extra, step = changes[-1]
        if owner == schedule_id and row is not None:
            asked = _in_force(record, schedule_id, step) if row.is_range else []
            found.append(_Row(row, tuple(each.trigger for each in asked), is_extra))
    return found


def _in_force(record: Record, schedule_id: ScheduleId, step: int) -> list[Definition]:
    """The definitions that a verb may have gone by: the one before it, and the one after it."""
    changes = record.schedules[schedule_id]
    before = [each.schedule for each in changes if each.step < step][-1:]
    after = [each.schedule for each in changes if each.step <= step][-1:]
    return [each.definition for each in (*before, *after) if each is not None]


def _has(trigger: Trigger, nominal_ms: int) -> bool:
    return trigger.next_after_ms(nominal_ms - 1) == nominal_ms
