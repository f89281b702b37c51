"""Days of the Gregorian calendar.

There are only fourteen calendars: seven first weekdays, leap year or not. A rule about days is
one table per calendar, built on first use, so finding the next matching day is one look-up.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import date
from functools import cache

from duly.triggers.instants import NEVER

HORIZON_YEARS = 40
_YEARS = range(1969, 2242)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

MonthMask = Callable[[int, int, int], int]
"""(month, its length, weekday of its first day with Monday = 0) → bit mask, bit 0 = the first."""
NextDay = Callable[[int], int]
"""First matching day at or after a day, both in days since 1970; NEVER beyond the horizon."""


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


_JANUARY_FIRST = [date(year, 1, 1).toordinal() - _EPOCH_ORDINAL for year in _YEARS]
_CALENDAR_OF = [2 * date(year, 1, 1).weekday() + _is_leap(year) for year in _YEARS]
"""Calendar number of each year: twice the weekday of 1 January, plus one in a leap year."""
_YEAR_OF = b"".join(bytes([i]) * (365 + _is_leap(year)) for i, year in enumerate(_YEARS) if i < 256)
"""Index of the year of each day from 1969 on; one byte each reaches past 2200."""


def _year_mask(month_mask: MonthMask, number: int) -> int:
    weekday, leap = divmod(number, 2)
    mask, day = 0, 0
    lengths = (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    for month, length in enumerate(lengths, start=1):
        mask |= month_mask(month, length, (weekday + day) % 7) << day
        day += length
    return mask


def has_days(month_mask: MonthMask) -> bool:
    """Return whether any calendar has a matching day, leap years first: they have every day."""
    numbers = (*range(1, 14, 2), *range(0, 14, 2))
    return any(_year_mask(month_mask, number) for number in numbers)


def next_day_of(month_mask: MonthMask) -> NextDay:
    """Compile a rule about days into a function that returns the next matching day."""
    tables: list[array[int] | None] = [None] * len(_YEARS)
    origin = -_JANUARY_FIRST[0]

    @cache
    def table_of(number: int) -> array[int]:
        """Return, for each day of a calendar, the first matching day at or after it, or -1."""
        mask, following = _year_mask(month_mask, number), -1
        table = array("h", bytes(2 * 366))
        for day in range(365, -1, -1):
            if mask >> day & 1:
                following = day
            table[day] = following
        return table

    @cache
    def first_from(year: int) -> int:
        for later in range(year, min(year + HORIZON_YEARS, len(_YEARS))):
            first = table_of(_CALENDAR_OF[later])[0]
            if first >= 0:
                return _JANUARY_FIRST[later] + first
        return NEVER

    def next_day(day: int) -> int:
        year = _YEAR_OF[day + origin]
        table = tables[year]
        if table is None:
            table = tables[year] = table_of(_CALENDAR_OF[year])
        start = _JANUARY_FIRST[year]
        found = table[day - start]
        return start + found if found >= 0 else first_from(year + 1)

    return next_day
