"""Weekly triggers: a table of times per weekday.

A table without any time is valid and has no next time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from duly.errors import InvalidTrigger
from duly.triggers.core import Wall, WallCore, weekly_core
from duly.triggers.trigger import JSON_VERSION, NO_LIMITS, Limits, WallTrigger
from duly.triggers.words import weekly_words
from duly.triggers.zone import Fold, Gap

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Table = Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Weekly(WallTrigger):
    """Times of the week in a zone; create one with weekly()."""

    times: tuple[tuple[str, ...], ...]
    """Seven tuples of HH:MM, Monday first."""
    wall: Wall = Wall()
    limits: Limits = NO_LIMITS
    core: WallCore | None = field(init=False, compare=False, repr=False)
    shared: WallCore | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        minutes = (
            1440 * day + 60 * int(time[:2]) + int(time[3:])
            for day, times in enumerate(self.times)
            for time in times
        )
        self._set_core(weekly_core(tuple(sorted(minutes)), self.wall))

    @property
    def words(self) -> str:
        """Return the table in words."""
        return weekly_words(self.times)

    def to_json(self) -> dict[str, Any]:
        """Return a versioned object that parse_trigger() reads back."""
        days = {day: list(times) for day, times in zip(DAYS, self.times, strict=True) if times}
        shown = {"v": JSON_VERSION, "kind": "weekly", "days": days}
        return shown | self.wall.to_json() | self.limits.to_json()


def weekly(
    days: Table,
    *,
    tz: str = "UTC",
    gap: Gap = "next_valid",
    fold: Fold = "first",
    start_at: datetime | None = None,
    end_at: datetime | None = None,
    spread: timedelta | float | None = None,
) -> Weekly:
    """Return a trigger for times per weekday.

    `days` is a table such as {"mon": "09:00", "tue": None, "thu": ["09:00", "17:30"]}.
    """
    return Weekly(table(days), Wall(tz, gap, fold), Limits.of(start_at, end_at, spread))


def table(days: object) -> tuple[tuple[str, ...], ...]:
    """Return seven tuples of times, Monday first; refuse unknown days and invalid times."""
    if not isinstance(days, Mapping):
        raise InvalidTrigger("days", days, "a table such as {'mon': '09:00'}")
    for day in days:
        if day not in DAYS:
            raise InvalidTrigger("days", day, ", ".join(DAYS))
    return tuple(_times(day, days.get(day)) for day in DAYS)


def _times(day: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    times = [value] if isinstance(value, str) else value
    if not isinstance(times, Sequence) or len(times) > 1440:
        raise InvalidTrigger(day, value, "HH:MM, a list of HH:MM, or null for off")
    for time in times:
        if not isinstance(time, str) or not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", time):
            text = time if isinstance(time, str) else repr(time)
            raise InvalidTrigger(day, text[:60], "HH:MM from 00:00 to 23:59, two digits each")
        if times.count(time) > 1:
            raise InvalidTrigger(day, time, "each time once")
    return tuple(sorted(times))
