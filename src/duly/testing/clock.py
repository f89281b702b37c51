"""A clock that changes only when a test sets or advances it."""

from __future__ import annotations

from datetime import datetime, timedelta

from duly.triggers.instants import to_ms


class ManualClock:
    """A clock that returns the instant it was last set or advanced to."""

    def __init__(self, start: datetime) -> None:
        self.set(start)

    def now(self) -> datetime:
        """Return the current instant of this clock."""
        return self._now

    def now_ms(self) -> int:
        """Return the current instant in milliseconds since 1970."""
        return to_ms(self._now)

    def set(self, instant: datetime) -> None:
        """Set the clock to an instant, earlier or later; refuse a naive datetime."""
        to_ms(instant)
        self._now = instant

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Move the clock forward by a duration."""
        self._now += timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
