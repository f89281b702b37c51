"""One-time triggers.

`Once` is a fixed instant. `LocalOnce` stores a wall time in a zone, so that new zone rules move its
instant as they do for cron.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.errors import InvalidTrigger
from duly.triggers.core import Wall, WallCore, once_core
from duly.triggers.instants import check_stored, from_ms, stored_ms, to_ms
from duly.triggers.trigger import (
    JSON_VERSION,
    LOCAL_ONCE_VERSION,
    NO_LIMITS,
    Limits,
    Trigger,
    WallTrigger,
)
from duly.triggers.words import local_once_words, once_words
from duly.triggers.zone import Fold, Gap

_INSTANT = "an aware datetime, ISO-8601 text with an offset, or a local time with tz="
_LOCAL = "a local date and time in whole seconds and without an offset, such as 2026-11-19T09:00"


@dataclass(frozen=True, slots=True)
class Once(Trigger):
    """A single instant; create one with once()."""

    at_ms: int
    limits: Limits = NO_LIMITS
    core = None
    shared = None

    def __post_init__(self) -> None:
        check_stored("at", self.at_ms)

    @property
    def at(self) -> datetime:
        """Return the only nominal time."""
        return from_ms(self.at_ms)

    @property
    def start_at(self) -> datetime:
        """Return the only nominal time."""
        return self.at

    @property
    def end_at(self) -> datetime:
        """Return the only nominal time."""
        return self.at

    @property
    def words(self) -> str:
        """Return the time in words."""
        return once_words(self.at)

    def to_json(self) -> dict[str, Any]:
        """Return a versioned object that parse_trigger() reads back."""
        shown = {"v": JSON_VERSION, "kind": "once", "at_ms": self.at_ms}
        return shown | self.limits.to_json()

    def _next_ms(self, ms: int) -> int | None:
        return self.at_ms if ms < self.at_ms else None


@dataclass(frozen=True, slots=True)
class LocalOnce(WallTrigger):
    """A single wall time in a zone; create one with once(at, tz=...)."""

    local: str
    """ISO-8601 without an offset, in whole seconds."""
    wall: Wall = Wall()
    limits: Limits = NO_LIMITS
    core: WallCore | None = field(init=False, compare=False, repr=False)
    shared: WallCore | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.wall.fold == "both":
            raise InvalidTrigger("fold", "both", "first or second: once has a single time")
        at = _local_time(self.local)
        object.__setattr__(self, "local", at.isoformat())
        wall_ms = check_stored("at", to_ms(at.replace(tzinfo=UTC)))
        self._set_core(once_core(wall_ms // 1000, self.wall))

    @property
    def at(self) -> datetime | None:
        """Return the only nominal time; None if it does not exist in the zone and `gap` is skip."""
        # Two days before the wall time read as UTC is before it in every zone.
        return self.next_after(_local_time(self.local).replace(tzinfo=UTC) - timedelta(days=2))

    @property
    def words(self) -> str:
        """Return the time in words, as local time of its zone."""
        return local_once_words(_local_time(self.local))

    @property
    def version(self) -> int:
        """Return the stored version; releases that do not know local times skip it."""
        return LOCAL_ONCE_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return a versioned object that parse_trigger() reads back."""
        shown = {"v": LOCAL_ONCE_VERSION, "kind": "once", "at": self.local}
        return shown | self.wall.to_json() | self.limits.to_json()


def once(
    at: datetime | str,
    *,
    tz: str | None = None,
    gap: Gap = "next_valid",
    fold: Fold = "first",
    spread: timedelta | float | None = None,
) -> Once | LocalOnce:
    """Return a trigger for one time, after which it has no next time.

    `at` is an aware datetime or ISO-8601 text with an offset. With `tz` it is a local time of that
    zone instead: a naive datetime or text without an offset. `gap` and `fold` then apply to a local
    time that does not exist or exists twice, as for cron().
    """
    limits = Limits.of(None, None, spread)
    return once_at(_read("at", at), None if tz is None else Wall(tz, gap, fold), limits)


def once_at(at: datetime, wall: Wall | None, limits: Limits) -> Once | LocalOnce:
    """Return the trigger of a parsed time; refuse a missing or surplus offset."""
    if wall is None:
        if at.utcoffset() is None:
            raise InvalidTrigger("at", at.isoformat(), _INSTANT)
        return Once(stored_ms("at", at), limits)
    if at.utcoffset() is not None:
        raise InvalidTrigger("at", at.isoformat(), f"with tz, {_LOCAL}; omit tz to keep the offset")
    if wall.tz == "UTC":
        # UTC has no clock changes: the instant is enough, and older releases can read it.
        return Once(stored_ms("at", at.replace(tzinfo=UTC)), limits)
    return LocalOnce(at.isoformat(), wall, limits)


def _read(field_name: str, at: object) -> datetime:
    if isinstance(at, datetime):
        return at
    try:
        return read_time(at)
    except ValueError:
        raise InvalidTrigger(field_name, at, _INSTANT) from None


def read_time(text: object) -> datetime:
    """Return the date and time of ISO-8601 text; raise ValueError if it has none."""
    if not isinstance(text, str) or len(text.strip()) <= len("2026-11-19"):
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _local_time(text: object) -> datetime:
    try:
        at = read_time(text)
    except ValueError:
        raise InvalidTrigger("at", text, _LOCAL) from None
    if at.utcoffset() is not None or at.microsecond:
        raise InvalidTrigger("at", text, _LOCAL)
    return at
