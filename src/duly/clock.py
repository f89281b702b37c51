"""The only reader of time.

Everything else takes an instant as an argument, or a Clock, so that tests decide what time it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""


class SystemClock:
    """The host's clock."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        return datetime.now(UTC)
