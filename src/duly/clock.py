"""The only reader of the current time.

Everything else takes an instant or a Clock as an argument, so that tests control the time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""


class SystemClock:
    """The host's clock."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        return datetime.now(UTC)
