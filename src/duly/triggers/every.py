"""Interval triggers in real time: anchor + k · interval.

They do not drift, do not replay a backlog by themselves, and ignore clock changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from duly.errors import InvalidTrigger
from duly.triggers.durations import duration_shown
from duly.triggers.trigger import JSON_VERSION, NO_LIMITS, Limits, Trigger, unbound
from duly.triggers.words import every_words

MIN_INTERVAL_MS = 1_000
MAX_INTERVAL_MS = 40 * 366 * 86_400_000
_UNITS_MS = {
    "weeks": 604_800_000,
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
}


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """A fixed interval from an anchor; create one with every()."""

    interval_ms: int
    limits: Limits = NO_LIMITS
    """`limits.start_ms` is the anchor."""
    core = None
    shared = None

    def __post_init__(self) -> None:
        interval = self.interval_ms
        if type(interval) is not int or not MIN_INTERVAL_MS <= interval <= MAX_INTERVAL_MS:
            allowed = "1 second to 40 years, in whole milliseconds"
            raise InvalidTrigger("interval", duration_shown(interval), allowed)

    @property
    def words(self) -> str:
        """Return the interval in words."""
        return every_words(self.interval_ms)

    def to_json(self) -> dict[str, Any]:
        """Return a versioned object that parse_trigger() reads back."""
        shown = {"v": JSON_VERSION, "kind": "every", "interval_ms": self.interval_ms}
        return shown | self.limits.to_json()

    @property
    def _needs_anchor(self) -> bool:
        return self.limits.start_ms is None

    def _next_ms(self, ms: int) -> int | None:
        anchor = self.limits.start_ms
        if anchor is None:
            raise unbound("start_at", "None")
        return anchor + ((ms - anchor) // self.interval_ms + 1) * self.interval_ms


def every(
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
    spread: timedelta | float | None = None,
) -> Every:
    """Return a trigger for an interval of real time: a day is always 24 hours.

    It counts from start_at; without one, from the time passed to bind().
    """
    units = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    return Every(interval_ms(units), Limits.of(start_at, end_at, spread))


def interval_ms(units: dict[str, float]) -> int:
    """Return a sum of units in whole milliseconds."""
    total = 0.0
    given: dict[str, object] = {**units}
    for name, amount in given.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise InvalidTrigger(name, amount, "a number")
        if not 0 <= amount <= MAX_INTERVAL_MS:  # neither NaN nor infinity passes
            raise InvalidTrigger(name, amount, "1 second to 40 years in all")
        total += amount * _UNITS_MS[name]
    return round(total)
