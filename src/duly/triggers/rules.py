"""Compiler of wall-time rules.

Compiles parsed fields or the minutes of a week into a function that returns the next matching wall
time. The functions know no zones and keep no state.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from duly.triggers.calendar import MonthMask, NextDay, next_day_of
from duly.triggers.fields import Field, Item
from duly.triggers.instants import DAY, NEVER

_WEEKLY_BITS = sum(1 << 7 * week for week in range(5))
_WEEK_MINUTES = 7 * 1440
_THURSDAY = 3 * 1440
"""1970 began on a Thursday; weeks here begin on Monday."""


NextWall = Callable[[int], int]
"""First matching wall time strictly after a wall time, in seconds since 1970; or NEVER."""


def weekly_rule(minutes: tuple[int, ...]) -> NextWall:
    """Return the rule of sorted minutes of the week, counted from Monday 00:00."""
    if not minutes:
        return lambda _wall: NEVER

    def next_wall(wall: int) -> int:
        week, of_week = divmod(wall // 60 + 1 + _THURSDAY, _WEEK_MINUTES)
        i = bisect_left(minutes, of_week)
        if i == len(minutes):
            week, i = week + 1, 0
        return (week * _WEEK_MINUTES + minutes[i] - _THURSDAY) * 60

    return next_wall


def _next_minutes(minutes: tuple[int, ...]) -> array[int]:
    """Return, per minute of a day, the first matching minute from it on; 1440+ is tomorrow's."""
    table = array("h", bytes(2 * 1440))
    following = minutes[0] + 1440
    matching = set(minutes)
    for minute in range(1439, -1, -1):
        if minute in matching:
            following = minute
        table[minute] = following
    return table


def _every_day(minutes: tuple[int, ...]) -> NextWall:
    table = _next_minutes(minutes)

    def next_wall(wall: int) -> int:
        minute = wall // 60 + 1
        of_day = minute % 1440
        return (minute - of_day + table[of_day]) * 60

    return next_wall


def _on_days(minutes: tuple[int, ...], next_day: NextDay) -> NextWall:
    table, first = _next_minutes(minutes), minutes[0] * 60

    def next_wall(wall: int) -> int:
        minute = wall // 60 + 1
        day = minute // 1440
        found = next_day(day)
        if found == day:
            of_day = table[minute - day * 1440]
            if of_day < 1440:
                return (day * 1440 + of_day) * 60
            found = next_day(day + 1)
        return found * DAY + first

    return next_wall


def _with_seconds(next_minute: NextWall, seconds: tuple[int, ...]) -> NextWall:
    def next_wall(wall: int) -> int:
        start = wall - wall % 60
        if next_minute(start - 1) == start:
            i = bisect_right(seconds, wall - start)
            if i < len(seconds):
                return start + seconds[i]
        return next_minute(start) + seconds[0]

    return next_wall


def cron_rule(fields: tuple[Field, ...]) -> NextWall:
    """Return the rule of six fields without H."""
    second, minute, hour = fields[:3]
    minutes = tuple(60 * h + m for h in _plain(hour) for m in _plain(minute))
    weekdays = _weekdays_alone(fields)
    if weekdays is None:
        rule = _on_days(minutes, next_day_of(month_mask(fields)))
    elif len(weekdays) == 7:
        rule = _every_day(minutes)
    else:
        rule = weekly_rule(tuple(1440 * day + m for day in weekdays for m in minutes))
    seconds = _plain(second)
    return rule if seconds == (0,) else _with_seconds(rule, seconds)


def month_mask(fields: tuple[Field, ...]) -> MonthMask:
    """Return the matching days of six fields as a function of the month."""
    day, month, weekday = fields[3:]
    return partial(_month_mask, day, month, weekday)


def _weekdays_alone(fields: tuple[Field, ...]) -> list[int] | None:
    """Return the weekdays (Monday = 0) if only they decide the day, else None."""
    day, month, weekday = fields[3:]
    if _plain(month) != tuple(range(1, 13)) or _plain(day) != tuple(range(1, 32)):
        return None
    if not day.is_open or any(item.kind != "values" for item in weekday.items):
        return None
    bits = _weekday_bits(weekday.items)
    return [each for each in range(7) if bits >> (each + 1) % 7 & 1]


def _plain(field: Field) -> tuple[int, ...]:
    values = {v for item in field.items if item.kind == "values" for v in item.values}
    return tuple(sorted(values))


def _month_mask(
    day: Field, month: Field, weekday: Field, number: int, length: int, first: int
) -> int:
    """Return the matching days of a month; `first`: weekday of its first day, Monday = 0."""
    if not any(number in item.values for item in month.items):
        return 0
    by_day = _days_mask(day.items, length, first)
    by_weekday = _weekdays_mask(weekday.items, length, first)
    # Vixie: both fields restricted means either may match.
    if day.is_open or weekday.is_open:
        return by_day & by_weekday
    return by_day | by_weekday


def _days_mask(items: tuple[Item, ...], length: int, first: int) -> int:
    mask = 0
    for item in items:
        if item.kind == "values":
            for day in item.values:
                mask |= 1 << day - 1
        elif item.kind == "last":
            mask |= 1 << length - 1
        elif item.kind == "last_weekday":
            mask |= 1 << _nearest_weekday(length, length, first) - 1
        elif item.kind == "nearest_weekday" and item.values[0] <= length:
            mask |= 1 << _nearest_weekday(item.values[0], length, first) - 1
    return mask & (1 << length) - 1


def _nearest_weekday(day: int, length: int, first: int) -> int:
    """Return the weekday (Monday to Friday) nearest to a day, never in another month."""
    weekday = (first + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < length else day - 2
    return day


def _weekday_bits(items: tuple[Item, ...]) -> int:
    """Return the plain weekdays as bits, Sunday = bit 0, as cron numbers them."""
    bits = 0
    for item in items:
        if item.kind == "values":
            for weekday in item.values:
                bits |= 1 << weekday % 7
    return bits


def _weekdays_mask(items: tuple[Item, ...], length: int, first: int) -> int:
    mask, whole = 0, (1 << length) - 1
    bits = _weekday_bits(items)
    for weekday in range(7):
        if bits >> weekday & 1:
            mask |= _WEEKLY_BITS << _first_of(weekday, first) - 1
    for item in items:
        if item.kind == "nth_of":
            weekday, nth = item.values[0], item.values[1]
            mask |= 1 << _first_of(weekday, first) + 7 * nth - 8
        elif item.kind == "last_of":
            all_of_them = _WEEKLY_BITS << _first_of(item.values[0], first) - 1 & whole
            mask |= 1 << all_of_them.bit_length() - 1
    return mask & whole


def _first_of(weekday: int, first: int) -> int:
    """Return the day of the first `weekday` (Sunday = 0) of a month that begins on `first`."""
    return (weekday - 1 - first) % 7 + 1
