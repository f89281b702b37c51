"""Base classes of all triggers.

A trigger returns the next nominal time strictly after an instant, or None. Triggers are values:
frozen, hashable, equal by content, stateless. Run time = nominal time + offset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from duly.errors import InvalidTrigger
from duly.triggers.core import Wall, WallCore
from duly.triggers.durations import duration_shown
from duly.triggers.explain import Explanation, explain
from duly.triggers.instants import (
    DAY,
    END_MS,
    END_S,
    EPOCH,
    check_asked,
    check_stored,
    from_ms,
    from_seconds,
    stored_ms,
    to_ms,
)

JSON_VERSION = 1
LOCAL_ONCE_VERSION = 2
"""Version of a local one-time rule: releases that know only version 1 skip its rows."""
NEWEST_VERSION = LOCAL_ONCE_VERSION
MAX_SPREAD_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on nominal time (both inclusive), the spread, and the seed that bind() sets."""

    start_ms: int | None = None
    end_ms: int | None = None
    spread_ms: int = 0
    seed: str | None = None

    def __post_init__(self) -> None:
        for name, ms in (("start_at", self.start_ms), ("end_at", self.end_ms)):
            if ms is not None:
                check_stored(name, ms)
        if self.start_ms is not None and self.end_ms is not None and self.end_ms < self.start_ms:
            raise InvalidTrigger("end_at", str(from_ms(self.end_ms)), "a time at or after start_at")
        if type(self.spread_ms) is not int or not 0 <= self.spread_ms <= MAX_SPREAD_MS:
            raise InvalidTrigger("spread", duration_shown(self.spread_ms), "0 seconds to 1 day")
        if self.seed is not None and not _is_seed(self.seed):
            raise InvalidTrigger("seed", self.seed, "16 hexadecimal digits from bind()")

    @classmethod
    def of(
        cls,
        start_at: datetime | None,
        end_at: datetime | None,
        spread: timedelta | float | None = None,
    ) -> Limits:
        """Return the limits of datetimes and a spread as passed by the caller."""
        if start_at is None and end_at is None and spread is None:
            return NO_LIMITS
        return cls(
            start_ms=None if start_at is None else stored_ms("start_at", start_at),
            end_ms=None if end_at is None else stored_ms("end_at", end_at),
            spread_ms=spread_to_ms(spread),
        )

    def to_json(self) -> dict[str, object]:
        """Return only the values that are set."""
        shown = {
            "start_at_ms": self.start_ms,
            "end_at_ms": self.end_ms,
            "spread_ms": self.spread_ms or None,
            "seed": self.seed,
        }
        return {name: value for name, value in shown.items() if value is not None}

    def choose(self, purpose: str, choices: int) -> int:
        """Return a number below `choices`, the same on every node for one seed and purpose."""
        digest = hashlib.sha256(f"{self.seed}:{purpose}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % choices


NO_LIMITS = Limits()


class Trigger:
    """A pure time rule; create one with cron(), every(), weekly() or once()."""

    __slots__ = ()
    limits: Limits
    core: WallCore | None
    """The compiled wall-clock rule; None for rules in real time and while H is unbound."""
    shared: WallCore | None
    """`core`, or None if start_at or end_at is set."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first nominal time strictly after an aware instant, in UTC, or None."""
        found = self.next_after_ms(to_ms(instant))
        return None if found is None else from_ms(found)

    def next_after_ms(self, ms: int) -> int | None:
        """Return the first nominal time strictly after `ms`; both in milliseconds since 1970."""
        if not 0 <= ms < END_MS:
            check_asked(ms)
        limits = self.limits
        if limits.start_ms is not None and ms < limits.start_ms:
            ms = limits.start_ms - 1
        found = self._next_ms(ms)
        if found is None or found >= END_MS:
            return None
        return None if limits.end_ms is not None and found > limits.end_ms else found

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield nominal times strictly after `start`, up to and including `end`."""
        last = to_ms(end)
        found = self.next_after_ms(to_ms(start))
        while found is not None and found <= last:
            yield from_ms(found)
            found = self.next_after_ms(found)

    def bind(self, key: str, created_at: datetime) -> Self:
        """Return the trigger with H, spread and anchor fixed; itself if nothing is left to fix.

        `key` decides H and the spread's offset, the same on every node; `created_at` becomes the
        anchor of an interval without one.
        """
        if not isinstance(key, str):
            raise InvalidTrigger("key", key, "the schedule's key as text")
        limits = self.limits
        if self._needs_seed and limits.seed is None:
            seed = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            limits = replace(limits, seed=seed)
        if self._needs_anchor:
            limits = replace(limits, start_ms=stored_ms("created_at", created_at))
        return self if limits is self.limits else self._with_limits(limits)

    @property
    def is_bound(self) -> bool:
        """Return whether nothing is left for bind() to fix."""
        return not self._needs_anchor and not (self._needs_seed and self.limits.seed is None)

    @property
    def offset_ms(self) -> int:
        """Return the offset from nominal time to run time: 0 <= offset < spread."""
        if not self.limits.spread_ms:
            return 0
        if self.limits.seed is None:
            raise unbound("spread", "spread")
        return self.limits.choose("spread", self.limits.spread_ms)

    def run_at(self, nominal: datetime) -> datetime:
        """Return the run time of a nominal time."""
        return from_ms(to_ms(nominal) + self.offset_ms)

    def explain(self, n: int = 5, after: datetime | None = None) -> Explanation:
        """Return the rule in words, and its next n times with remarks on clock changes."""
        return explain(self, n, after)

    @property
    def tz(self) -> str:
        """Return the IANA name of the rule's zone; UTC for rules in real time."""
        return "UTC"

    @property
    def version(self) -> int:
        """Return the oldest version of the stored form that can express the trigger."""
        return JSON_VERSION

    @property
    def start_at(self) -> datetime | None:
        """Return the first allowed nominal time; None: no bound."""
        return None if self.limits.start_ms is None else from_ms(self.limits.start_ms)

    @property
    def end_at(self) -> datetime | None:
        """Return the last allowed nominal time; None: no bound."""
        return None if self.limits.end_ms is None else from_ms(self.limits.end_ms)

    @property
    def words(self) -> str:
        """Return the rule in words."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return a versioned object that parse_trigger() reads back to an equal trigger."""
        raise NotImplementedError

    @property
    def _needs_seed(self) -> bool:
        return self.limits.spread_ms > 0

    @property
    def _needs_anchor(self) -> bool:
        return False

    def _next_ms(self, ms: int) -> int | None:
        """Return the first nominal time strictly after `ms`, regardless of the limits."""
        raise NotImplementedError

    def _with_limits(self, limits: Limits) -> Self:
        return replace(self, limits=limits)  # type: ignore[type-var]


class WallTrigger(Trigger):
    """A trigger in wall-clock time: cron, weekly and local once."""

    __slots__ = ()
    wall: Wall

    def _set_core(self, core: WallCore | None) -> None:
        """Set the computed fields of a frozen value."""
        is_bounded = self.limits.start_ms is not None or self.limits.end_ms is not None
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "shared", None if is_bounded else core)

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first nominal time strictly after an aware instant, in UTC, or None."""
        core = self.shared
        if core is None:
            return super().next_after(instant)
        # The common case in whole seconds: converting to milliseconds would cost a third.
        try:
            since = instant - EPOCH
        except (TypeError, AttributeError):
            return super().next_after(instant)
        seconds = since.days * DAY + since.seconds
        if not 0 <= seconds < END_S:
            check_asked(seconds * 1000)
        found = core.next_seconds(seconds)
        return from_seconds(found) if found < END_S else None

    @property
    def tz(self) -> str:
        """Return the IANA name of the zone."""
        return self.wall.tz

    def _next_ms(self, ms: int) -> int | None:
        if self.core is None:
            raise unbound("expression", "H")
        return self.core.next_seconds(ms // 1000) * 1000


def wall_of(trigger: Trigger) -> Wall | None:
    """Return the zone, gap and fold of a trigger; None for rules in real time."""
    return trigger.wall if isinstance(trigger, WallTrigger) else None


def unbound(field: str, text: str) -> InvalidTrigger:
    """Return the error of a call that needs bind() first."""
    return InvalidTrigger(field, text, "bound triggers only: call bind(key, created_at) first")


def _is_seed(seed: object) -> bool:
    return isinstance(seed, str) and len(seed) == 16 and set(seed) <= set("0123456789abcdef")


def spread_to_ms(spread: timedelta | float | None) -> int:
    """Return a spread, a timedelta or seconds, in whole milliseconds."""
    if spread is None:
        return 0
    seconds = spread.total_seconds() if isinstance(spread, timedelta) else spread
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidTrigger("spread", spread, "a timedelta or a number of seconds")
    if not abs(seconds) <= MAX_SPREAD_MS:  # neither NaN nor infinity passes
        raise InvalidTrigger("spread", spread, "0 seconds to 1 day")
    return round(seconds * 1000)
