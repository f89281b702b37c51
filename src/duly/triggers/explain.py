"""Explanations of triggers for people.

A trigger in words and its next times, each with a remark if a clock change moved it, doubled it,
or removed one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from duly.clock import SystemClock
from duly.errors import InvalidInput, shown
from duly.triggers.core import WallCore
from duly.triggers.instants import EPOCH, from_ms, to_ms
from duly.triggers.words import clock_words

if TYPE_CHECKING:
    from duly.triggers.trigger import Trigger

MAX_TIMES = 10_000


@dataclass(frozen=True, slots=True)
class ExplainedTime:
    """One nominal time, in the trigger's zone and in UTC."""

    at: datetime
    local: datetime
    remark: str | None = None

    def __str__(self) -> str:
        remark = f"  ({self.remark})" if self.remark else ""
        at, local = (f"{each:%H:%M:%S}{_fraction(each)}" for each in (self.at, self.local))
        return f"{self.local:%a %Y-%m-%d} {local} {self.local:%z}  {self.at:%Y-%m-%d} {at}Z{remark}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A trigger in words and its next times; str() returns it as text."""

    words: str
    tz: str | None
    """The zone the rule is evaluated in; None for rules in real time."""
    times: tuple[ExplainedTime, ...]
    is_over: bool = False
    """The trigger has no next time at all."""

    @property
    def heading(self) -> str:
        """Return the words and the zone they apply to."""
        return self.words if self.tz is None else f"{self.words}, {self.tz}"

    def __str__(self) -> str:
        lines = ["  no next time"] if self.is_over else [f"  {time}" for time in self.times]
        return "\n".join([self.heading, *lines])


def explain(trigger: Trigger, n: int, after: datetime | None) -> Explanation:
    """Return the trigger in words and its next n times after an instant (default: now)."""
    if type(n) is not int or not 0 <= n <= MAX_TIMES:
        raise InvalidInput(f"n is {shown(n)}; allowed: 0 to {MAX_TIMES}")
    info = ZoneInfo(trigger.tz)
    last = to_ms(SystemClock().now() if after is None else after)
    times: list[ExplainedTime] = []
    while len(times) < n:
        found = trigger.next_after_ms(last)
        if found is None:
            break
        since = max(last, (trigger.limits.start_ms or 0) - 1)
        remarks = [] if trigger.core is None else _remarks(trigger.core, since, found)
        at = from_ms(found)
        times.append(ExplainedTime(at, at.astimezone(info), "; ".join(remarks) or None))
        last = found
    tz = trigger.tz if trigger.core else None
    return Explanation(trigger.words, tz, tuple(times), is_over=n > 0 and not times)


def _remarks(core: WallCore, last_ms: int, found_ms: int) -> list[str]:
    """Return remarks on the clock changes between one time and the next."""
    last, found = last_ms // 1000, found_ms // 1000
    remarks = []
    # A fold or shifted gap just before `last` can still concern `found`: look a day back.
    for change, before, after in core.zone.changes(last - 86_400, found + 86_400):
        if after > before:
            if core.is_open_hour:
                continue
            remarks += _gap_remarks(core, last, found, (change, before, after))
        elif change - (before - after) <= found < change:
            remarks.append(f"{_wall(found + before)} comes twice that day, this is the first")
        elif change <= found < change + before - after:
            remarks.append(f"{_wall(found + after)} comes twice that day, this is the second")
    return remarks


def _gap_remarks(core: WallCore, last: int, found: int, change: tuple[int, int, int]) -> list[str]:
    """Return remarks on the wall times that one forward clock change removed."""
    start, before, after = change
    remarks: list[str] = []
    wall = core.next_wall(start + before - 1)
    while wall < start + after and len(remarks) < 3:
        moved = start if core.gap == "next_valid" else wall - before
        if core.gap == "skip":
            if last < start <= found:
                remarks.append(f"{_day_and_wall(wall)} does not exist, skipped")
        elif moved == found:
            remarks.append(f"{_wall(wall)} does not exist that day, moved to here")
        wall = core.next_wall(wall)
    return remarks


def _fraction(at: datetime) -> str:
    """Return the milliseconds as a suffix; "" if there are none."""
    return f".{at.microsecond // 1000:03}" if at.microsecond // 1000 else ""


def _wall(wall: int) -> str:
    return clock_words(EPOCH + timedelta(seconds=wall))


def _day_and_wall(wall: int) -> str:
    at = EPOCH + timedelta(seconds=wall)
    return f"{at:%Y-%m-%d} {clock_words(at)}"
