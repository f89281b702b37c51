"""An independent calculation of the times a schedule should have fired at.

Walks each trigger over the periods in which its definition was in force, without index rows or
planners. A time belongs to the period that contains its run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duly.model.schedules import Definition
from duly.testing.simulation.record import ScheduleChange

FOREVER_MS = 1 << 60


class Stretch(NamedTuple):
    """A definition and the period it was in force: `since_ms` exclusive, `until_ms` inclusive."""

    since_ms: int
    until_ms: int
    definition: Definition
    is_last: bool
    """True if no edit or deletion followed."""


class Expected(NamedTuple):
    """A nominal time that the ledger must account for."""

    nominal_ms: int
    run_at_ms: int
    stretch: Stretch


def stretches(changes: Sequence[ScheduleChange]) -> list[Stretch]:
    """Return the definitions of a schedule in order, until it was deleted."""
    found: list[Stretch] = []
    for at_ms, schedule, _ in changes:
        if found and found[-1].is_last:
            found[-1] = found[-1]._replace(until_ms=at_ms, is_last=False)
        if schedule is None:
            break
        if found and found[-1].definition == schedule.definition:
            found[-1] = found[-1]._replace(until_ms=FOREVER_MS, is_last=True)
        else:
            found.append(Stretch(at_ms, FOREVER_MS, schedule.definition, is_last=True))
    return found


def expected(stretch: Stretch, end_ms: int) -> Iterator[Expected]:
    """Yield times whose run time came while the definition was in force, paused or not."""
    trigger = stretch.definition.trigger
    offset_ms = trigger.offset_ms
    until_ms = min(stretch.until_ms, end_ms)
    nominal_ms = trigger.next_after_ms(stretch.since_ms - offset_ms)
    while nominal_ms is not None and nominal_ms + offset_ms <= until_ms:
        yield Expected(nominal_ms, nominal_ms + offset_ms, stretch)
        nominal_ms = trigger.next_after_ms(nominal_ms)


def not_yet_due(stretch: Stretch) -> Iterator[int]:
    """Yield times that had come when the definition was replaced, but whose run time had not."""
    trigger = stretch.definition.trigger
    nominal_ms = trigger.next_after_ms(stretch.until_ms - trigger.offset_ms)
    while nominal_ms is not None and nominal_ms <= stretch.until_ms:
        yield nominal_ms
        nominal_ms = trigger.next_after_ms(nominal_ms)
