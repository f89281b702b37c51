"""Checks of times: each has exactly one ledger row, by the policy that was in force.

Compares the ledger with the oracle. A row for a range covers each time of the trigger then in force
between the first and the last.
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
    """A ledger row at the end, and the triggers in force when it was written."""

    row: Occurrence
    rules: tuple[Trigger, ...]
    is_extra: bool

    def covers(self, nominal_ms: int) -> bool:
        """Return whether the row covers a time."""
        if self.row.nominal_ms == nominal_ms:
            return True
        is_inside = self.row.is_range and self.row.covers(nominal_ms)
        return is_inside and any(_has(rule, nominal_ms) for rule in self.rules)


def covered_once(record: Record) -> Iterator[Violation]:
    """Yield times of active schedules that have no row, several rows, or a wrong withdrawal."""
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
        yield Violation(
            "forgotten", schedule_id, f"{each.nominal_ms} was withdrawn and not planned again"
        )


def is_left_behind(record: Record, schedule_id: ScheduleId, each: Expected) -> bool:
    """Return whether the schedule was deleted before a time was planned."""
    last = record.schedules[schedule_id][-1]
    if last.schedule is not None:
        return False
    before = [hand for hand in record.hands.get(schedule_id, []) if hand.at_ms < last.at_ms]
    return bool(before) and (before[-1].nominal_ms or FOREVER_MS) <= each.nominal_ms


def left_behind(record: Record) -> int:
    """Return how many times have no row because of a deletion before they were planned."""
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
    """Return whether a time stayed withdrawn although the schedule still has it."""
    last = record.rows[schedule_id, each.nominal_ms][-1]
    if last.at_ms < each.run_at_ms:
        return True  # its definition came later, or was not replaced
    known = [one.schedule for one in record.schedules[schedule_id] if one.step <= last.step]
    if not known or known[-1] is None:
        return False
    after = known[-1].definition
    count = RunCount(record, schedule_id)
    if count.is_used_up(last.step) or count.is_used_up(record.steps):
        return False  # its refunded run went to another time
    return after.enabled and _has(after.trigger, each.nominal_ms)


def nothing_unasked(record: Record) -> Iterator[Violation]:
    """Yield rows for times that the schedule did not have and that were not requested."""
    for schedule_id, changes in record.schedules.items():
        found = stretches(changes)
        wanted = {each.nominal_ms for one in found for each in expected(one, record.end_ms)}
        wanted |= {ms for one in found for ms in _taken_along(record, schedule_id, one)}
        for row, _, is_extra in _rows(record, schedule_id):
            is_due = row.state is not _S.WITHDRAWN and not is_extra
            # A pause is recorded by the trigger at its end, regardless of edits meanwhile.
            if is_due and row.reason != PAUSED and row.nominal_ms not in wanted:
                words = f"{row.nominal_ms} is {row.state}, but no trigger had it then"
                yield Violation("unasked", schedule_id, words)


def _taken_along(record: Record, schedule_id: ScheduleId, stretch: Stretch) -> list[int]:
    """Return times of the earlier definition that the write which began a stretch took over.

    Either it withdrew them; or they had come but, because of their spread, were not due yet and not
    planned. The new definition has them too.
    """
    # A time may be withdrawn and planned again in one step: then its row only changes.
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
    """Yield rows that contradict their policy: missed within the grace, or wrongly skipped."""
    for (schedule_id, _), changes in record.rows.items():
        state: OccurrenceState | None = None
        for at_ms, row, _, step in changes:
            if row is not None and row.state is not state:
                # An edit applies the old definition to due times and the new one to later ones.
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
        yield Violation(
            "missed",
            schedule_id,
            f"{row.nominal_ms} was late and should be skipped, but is planned",
        )
    if row.state is _S.SKIPPED and policies.overlap == "allow":
        yield Violation(
            "skipped", schedule_id, f"{row.nominal_ms} was skipped, but its policy allows overlap"
        )


def pauses_told(record: Record) -> Iterator[Violation]:
    """Yield times within a finished pause that do not have exactly one row."""
    for schedule_id, changes in record.schedules.items():
        found = stretches(changes)
        rows = _rows(record, schedule_id)
        for pause, following in pairwise(found):
            if pause.definition.enabled or not following.definition.enabled:
                continue
            if RunCount(record, schedule_id).is_used_up(_step_of(record, schedule_id, following)):
                continue  # the limit was used up, so the pause had no times
            for each in expected(pause, record.end_ms):
                count = sum(row.covers(each.nominal_ms) for row in rows)
                if count != 1:
                    words = f"{each.nominal_ms}, in a pause, has {count} rows"
                    yield Violation("pause", schedule_id, words)


def _step_of(record: Record, schedule_id: ScheduleId, stretch: Stretch) -> int:
    """Return the number of the verb that began a stretch."""
    changes = record.schedules[schedule_id]
    return next(each.step for each in changes if each.at_ms == stretch.since_ms)


def _last_ms(record: Record, schedule_id: ScheduleId, stretch: Stretch) -> int:
    """Return the last time that the limit on runs allowed; FOREVER_MS if it was not used up."""
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
    # The write that ends a stretch may use up the limit and refund runs that had not begun. So may
    # a later write, if the stretch ended before all its times were planned.
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
    """Return the schedule's own times whose row entered one of the states in a period."""
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
    """Return the ledger rows of a schedule at the end."""
    found = []
    for (owner, _), changes in record.rows.items():
        _, row, is_extra, step = changes[-1]
        if owner == schedule_id and row is not None:
            asked = _in_force(record, schedule_id, step) if row.is_range else []
            found.append(_Row(row, tuple(each.trigger for each in asked), is_extra))
    return found


def _in_force(record: Record, schedule_id: ScheduleId, step: int) -> list[Definition]:
    """Return the definitions that a verb may have used: the one before it, and the one after."""
    changes = record.schedules[schedule_id]
    before = [each.schedule for each in changes if each.step < step][-1:]
    after = [each.schedule for each in changes if each.step <= step][-1:]
    return [each.definition for each in (*before, *after) if each is not None]


def _has(trigger: Trigger, nominal_ms: int) -> bool:
    return trigger.next_after_ms(nominal_ms - 1) == nominal_ms
