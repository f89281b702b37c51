"""Explain why a schedule did or did not fire at an instant. Pure.

The answer is a verdict, one paragraph and the facts it is based on. Every instant has an answer,
including one that is not a time of the schedule, or lies before its creation, in a pause, or after
its deletion.
"""

from __future__ import annotations

from datetime import UTC, datetime

from duly.operate.why.history import count_times, is_time, stretches
from duly.operate.why.recorded import recorded
from duly.operate.why.unrecorded import unrecorded
from duly.operate.why.wording import Answer, Fact, Inquiry, Stored, Verdict
from duly.triggers.instants import calendar_ms, to_ms

__all__ = ["Answer", "Fact", "Stored", "Verdict", "count_times", "stretches", "why"]


def why(stored: Stored, now: datetime, at: datetime) -> Answer:
    """Return the outcome of an instant and its reason; `at` may be in any zone."""
    life = stretches(stored.schedule, stored.events)
    at_ms = calendar_ms(at)
    here = next((each for each in life if each.holds(at_ms)), None)
    rule = None if here is None else here.trigger
    inquiry = Inquiry(stored, life, to_ms(now), at_ms, here)
    inquiry.note("asked", inquiry.iso(at_ms))
    if rule is not None:
        inquiry.note("rule", inquiry.rule(rule))
    row = stored.occurrence
    is_recorded = row is not None and (
        # A range row covers an interval, and not every instant in it is a nominal time.
        row.nominal_ms == at_ms or rule is None or is_time(rule, at_ms)
    )
    if row is not None and is_recorded:
        verdict, text = recorded(inquiry, row)
    else:
        verdict, text = unrecorded(inquiry, _lost_wall(at))
    return Answer(verdict, text + inquiry.edit(), tuple(inquiry.facts))


def _lost_wall(at: datetime) -> datetime | None:
    """Return the requested wall time if it falls into a clock gap, else None."""
    wall = at.replace(tzinfo=None)
    there = at.astimezone(UTC).astimezone(at.tzinfo).replace(tzinfo=None)
    return None if wall == there else wall
