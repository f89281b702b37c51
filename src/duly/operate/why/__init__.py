"""Station 8: why did it fire at T, or why did it not? Pure.

Takes what is stored about one schedule and one instant; gives a verdict, one plain paragraph, and
the facts it stands on. Every instant of the calendar has an answer: also one that is no time of
the schedule, or lies before its creation, in a pause, or behind its deletion.
"""

from __future__ import annotations

from datetime import UTC, datetime

from duly.operate.why.history import count_times, is_time, stretches
from duly.operate.why.recorded import recorded
from duly.operate.why.unrecorded import unrecorded
from duly.operate.why.wording import Answer, Fact, Stored, Telling, Verdict
from duly.triggers.instants import calendar_ms, to_ms

__all__ = ["Answer", "Fact", "Stored", "Verdict", "count_times", "stretches", "why"]


def why(stored: Stored, now: datetime, at: datetime) -> Answer:
    """What became of an instant, and why; `at` may be on the wall of any zone."""
    life = stretches(stored.schedule, stored.events)
    at_ms = calendar_ms(at)
    here = next((each for each in life if each.holds(at_ms)), None)
    rule = None if here is None else here.trigger
    telling = Telling(stored, life, to_ms(now), at_ms, here)
    telling.note("asked", telling.iso(at_ms))
    if rule is not None:
        telling.note("rule", telling.rule(rule))
    row = stored.occurrence
    is_recorded = row is not None and (
        # A run of times reaches from its first to its last, and not all between are times.
        row.nominal_ms == at_ms or rule is None or is_time(rule, at_ms)
    )
    if row is not None and is_recorded:
        verdict, text = recorded(telling, row)
    else:
        verdict, text = unrecorded(telling, _lost_wall(at))
    return Answer(verdict, text + telling.edit(), tuple(telling.facts))


def _lost_wall(at: datetime) -> datetime | None:
    """The wall time that was asked about, where the clocks left it out."""
    wall = at.replace(tzinfo=None)
    there = at.astimezone(UTC).astimezone(at.tzinfo).replace(tzinfo=None)
    return None if wall == there else wall
