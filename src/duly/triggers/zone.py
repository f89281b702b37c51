"""Time zones and clock changes.

A zone is a list of segments of constant offset. Invariant: inside the steady part of a segment (no
gap or fold near) wall time and instants differ by the offset only; everywhere else `walk` finds
the first matching instant of a wall-time rule.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from duly.errors import InvalidTrigger
from duly.triggers.instants import DAY, END_S, EPOCH, NEVER
from duly.triggers.rules import NextWall

Gap = Literal["next_valid", "shift", "skip"]
Fold = Literal["first", "second", "both"]

_FIRST = -2 * DAY
_LAST = END_S + 2 * DAY
_PROBE = 3 * DAY
_QUARTER = 900
_NOT_PLACES = ("localtime", "posixrules", "Factory", "posix/", "right/")
"""Files that are not zones of their own: the host's zone and copies with leap seconds."""
STEADY_SHIFT = 21
"""The table of steady parts has an entry for every 2**21 seconds, about 24 days."""


class Zone:
    """One IANA zone as segments of constant offset, 1970–2200."""

    __slots__ = ("_offsets", "_starts", "_steady", "name", "steady")

    def __init__(self, name: str, info: ZoneInfo) -> None:
        self.name = name
        self._starts, self._offsets = _segments(info)
        self._steady = [self._steady_part(i) for i in range(len(self._starts))]
        self.steady = [
            self.steady_at(k << STEADY_SHIFT) for k in range((END_S >> STEADY_SHIFT) + 2)
        ]
        """By instant >> STEADY_SHIFT: (start, end, offset) of a steady part, likely around it."""

    def steady_at(self, instant: int) -> tuple[int, int, int]:
        """Return (start, end, offset) of the steady part of the segment that contains `instant`."""
        return self._steady[self._index(instant)]

    def _index(self, instant: int) -> int:
        return bisect_right(self._starts, instant) - 1

    def offset_at(self, instant: int) -> int:
        """Return the offset from UTC at an instant, in seconds."""
        return self._offsets[self._index(instant)]

    def changes(self, after: int, until: int) -> list[tuple[int, int, int]]:
        """Return the clock changes in (after, until]: (instant, offset before, offset after)."""
        first = max(1, bisect_right(self._starts, after))
        last = bisect_right(self._starts, until)
        return [
            (self._starts[i], self._offsets[i - 1], self._offsets[i]) for i in range(first, last)
        ]

    def _end(self, i: int) -> int:
        return self._starts[i + 1] if i + 1 < len(self._starts) else NEVER

    def _neighbours(self, i: int) -> tuple[int, int]:
        """Return the offsets before and after segment i; its own if there is no neighbour."""
        before = self._offsets[max(0, i - 1)]
        after = self._offsets[min(i + 1, len(self._offsets) - 1)]
        return before, after

    def _steady_part(self, i: int) -> tuple[int, int, int]:
        offset = self._offsets[i]
        before, after = self._neighbours(i)
        return self._starts[i] + abs(offset - before), self._end(i) - abs(after - offset), offset

    def walk(self, after: int, next_wall: NextWall, gap: Gap, fold: Fold) -> int:
        """Return the first match after `after`, searched segment by segment, or NEVER."""
        for j in range(self._index(after), len(self._starts)):
            begin = max(after, self._starts[j] - 1)
            found = [
                *self._from_gap(j, begin, next_wall, gap),
                *self._from_segment(j, begin, next_wall, fold),
            ]
            if found:
                return min(found)
        return NEVER

    def _from_segment(self, i: int, after: int, next_wall: NextWall, fold: Fold) -> list[int]:
        """Return the first match after `after` in segment i, under the fold rule, or []."""
        offset, (earlier, later) = self._offsets[i], self._neighbours(i)
        begin, end = after + 1 + offset, self._end(i) + offset
        if fold == "first":
            begin = max(begin, self._starts[i] + earlier)
        if fold == "second":
            end = min(end, self._end(i) + later)
        wall = next_wall(begin - 1)
        return [wall - offset] if wall < end else []

    def _from_gap(self, i: int, after: int, next_wall: NextWall, gap: Gap) -> list[int]:
        """Return the first match after `after` from the gap before segment i, moved, or []."""
        start, offset, (before, _) = self._starts[i], self._offsets[i], self._neighbours(i)
        if offset <= before or gap == "skip":
            return []
        begin = start if gap == "next_valid" else max(start, after + 1)
        wall = next_wall(begin + before - 1)
        if wall >= start + offset:
            return []
        moved = start if gap == "next_valid" else wall - before
        return [moved] if moved > after else []


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """Return the zone of an IANA name; refuse an unknown one with suggestions."""
    if len(name) > 64 or name.startswith(_NOT_PLACES):
        raise InvalidTrigger("tz", name[:64], "an IANA zone name such as Europe/Berlin")
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        names = _names()
        found = get_close_matches(name.lower(), list(names), n=3, cutoff=0.6)
        close = [names[each] for each in found]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise InvalidTrigger("tz", name, f"an IANA zone name such as Europe/Berlin{hint}") from None


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Return the known names by lower-case form: wrong case is the most common mistake."""
    return {name.lower(): name for name in sorted(available_timezones())}


@lru_cache(maxsize=1)
def _probes() -> list[datetime]:
    naive = EPOCH.replace(tzinfo=None)
    return [naive + timedelta(seconds=s) for s in range(_FIRST, _LAST + _PROBE, _PROBE)]


def _segments(info: ZoneInfo) -> tuple[list[int], list[int]]:
    """Return starts and offsets of the zone's segments, found by probing and bisection.

    zoneinfo does not publish its transitions, so this asks it for the offset every third day:
    no zone has changed its offset twice within five (a test compares with the zone files).
    """
    probed = [_seconds(each) for each in map(info.utcoffset, _probes())]
    starts, offsets = [_FIRST - DAY], [probed[0]]
    for k, (left, right) in enumerate(pairwise(probed)):
        if left != right:
            # Probes are wall times, so the change may lie a day outside their instants.
            begin, end = _FIRST + k * _PROBE - DAY, _FIRST + (k + 1) * _PROBE + DAY
            starts.append(_change(info, begin, end, left))
            offsets.append(right)
    return starts, offsets


def _change(info: ZoneInfo, begin: int, end: int, left: int) -> int:
    """Return the instant in (begin, end] at which the offset stops being `left`."""

    def is_left(instant: int) -> bool:
        return _seconds((EPOCH + timedelta(0, instant)).astimezone(info).utcoffset()) == left

    # Nearly all changes are at a quarter of an hour: trying that first halves the steps.
    for step in (_QUARTER, 1):
        while end - begin > step:
            middle = (begin + end) // 2 // step * step
            if is_left(middle):
                begin = middle
            else:
                end = middle
        if is_left(end - 1):
            break
    return end


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset.days * DAY + offset.seconds
