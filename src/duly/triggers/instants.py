"""Instants: aware datetimes in the API, integer milliseconds since 1970 inside.

Conversion refuses naive datetimes and years outside the range, so no other module has to check.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from duly.errors import InvalidInstant, InvalidTrigger

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400
STORED_FROM_MS = 946_684_800_000
"""2000-01-01. A stored instant before it is most likely seconds written as milliseconds."""
END_MS = 7_258_118_400_000
"""2200-01-01. Instants and next times are before it."""
END_S = END_MS // 1000
NEVER = 1 << 60
"""Seconds. Rules return it if nothing matches; like everything past END_S it means None."""


def to_ms(instant: datetime) -> int:
    """Return an aware datetime in milliseconds since 1970, rounded down; refuse a naive one."""
    given: object = instant
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise InvalidInstant(
            f"{instant!r} has no time zone; pass an aware datetime, e.g. datetime.now(UTC)"
        )
    since = instant - EPOCH
    return (since.days * DAY + since.seconds) * 1000 + since.microseconds // 1000


_FIRST_MS = to_ms(datetime(1, 1, 2, tzinfo=UTC))
_LAST_MS = to_ms(datetime(9999, 12, 31, tzinfo=UTC))
_MINUTES = [timedelta(minutes=minute) for minute in range(1440)]


@lru_cache(maxsize=4096)
def _midnight(day: int) -> datetime:
    return EPOCH + timedelta(days=day)


def from_seconds(seconds: int) -> datetime:
    """Return the UTC datetime of whole seconds since 1970."""
    minute = seconds // 60
    if minute * 60 != seconds:
        return datetime.fromtimestamp(seconds, UTC)
    # Adding two datetime values takes half the time of creating one from a number.
    day = minute // 1440
    return _midnight(day) + _MINUTES[minute - day * 1440]


def from_ms(ms: int) -> datetime:
    """Return the UTC datetime of milliseconds since 1970."""
    return EPOCH + timedelta(milliseconds=ms)


def check_asked(ms: int) -> None:
    """Refuse an instant outside 1970–2200."""
    if not 0 <= ms < END_MS:
        try:
            shown = from_ms(ms).isoformat()
        except OverflowError:
            shown = f"an instant of {ms} (in ms since 1970)"
        raise InvalidInstant(f"{shown} is outside the years 1970 to 2199")


def calendar_ms(instant: datetime) -> int:
    """Return an instant in milliseconds; refuse one that has no date in some zone."""
    ms = to_ms(instant)
    if not _FIRST_MS <= ms < _LAST_MS:
        told = instant.isoformat()
        raise InvalidInstant(f"{told} is at the edge of the calendar; ask about another time")
    return ms


def stored_ms(field: str, instant: datetime) -> int:
    """Return an instant that a trigger stores, in milliseconds; refuse one outside 2000–2200."""
    try:
        ms = to_ms(instant)
    except InvalidInstant:
        raise InvalidTrigger(field, instant, "an aware datetime") from None
    return check_stored(field, ms)


def check_stored(field: str, ms: object) -> int:
    """Return milliseconds read from JSON; refuse them outside 2000–2200."""
    if type(ms) is not int or not STORED_FROM_MS <= ms < END_MS:
        allowed = "milliseconds since 1970 in the years 2000 to 2199 (not seconds)"
        raise InvalidTrigger(field, ms, allowed)
    return ms
