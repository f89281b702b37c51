"""Station 1: one time, then finished."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from duly.triggers.instants import check_stored, from_ms, stored_ms
from duly.triggers.trigger import JSON_VERSION, NO_LIMITS, Limits, Trigger
from duly.triggers.words import once_words


@dataclass(frozen=True, slots=True)
class Once(Trigger):
    """A single instant. Make one with once()."""

    at_ms: int
    limits: Limits = NO_LIMITS
    core = None
    shared = None

    def __post_init__(self) -> None:
        check_stored("at", self.at_ms)

    @property
    def at(self) -> datetime:
        """The one nominal time."""
        return from_ms(self.at_ms)

    @property
    def start_at(self) -> datetime:
        """The one nominal time."""
        return self.at

    @property
    def end_at(self) -> datetime:
        """The one nominal time."""
        return self.at

    @property
    def words(self) -> str:
        """The time in plain words."""
        return once_words(self.at)

    def to_json(self) -> dict[str, Any]:
        """A versioned object; parse_trigger() reads it back."""
        shown = {"v": JSON_VERSION, "kind": "once", "at_ms": self.at_ms}
        return shown | self.limits.to_json()

    def _next_ms(self, ms: int) -> int | None:
        return self.at_ms if ms < self.at_ms else None


def once(at: datetime, *, spread: timedelta | float | None = None) -> Once:
    """One time, given as an aware datetime; then the trigger has no next time."""
    return Once(stored_ms("at", at), Limits.of(None, None, spread))
