"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import datetime, timedelta

from duly.triggers.instants import to_ms


class ManualClock:
    """Tells the time it was set to."""

    def __init__(self, start: datetime) -> None:
        self.set(start)

    def now(self) -> datetime:
        """The instant that was set last."""
        return self._now

    def now_ms(self) -> int:
        """The same in milliseconds since 1970."""
        return to_ms(self._now)

    def set(self, instant: datetime) -> None:
        """Make it that instant, earlier or later; a naive one is refused."""
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
        """Move forward by a duration."""
        self._now += timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
