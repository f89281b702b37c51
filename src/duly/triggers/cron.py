"""Cron triggers: a strict expression of five fields (six with seconds=True) in a zone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from duly.errors import InvalidTrigger
from duly.triggers.core import Wall, WallCore, cron_core, fields_of
from duly.triggers.trigger import JSON_VERSION, NO_LIMITS, Limits, WallTrigger
from duly.triggers.words import cron_words
from duly.triggers.zone import Fold, Gap


@dataclass(frozen=True, slots=True)
class Cron(WallTrigger):
    """A cron expression in a zone; create one with cron()."""

    expression: str
    seconds: bool = False
    wall: Wall = Wall()
    limits: Limits = NO_LIMITS
    core: WallCore | None = field(init=False, compare=False, repr=False)
    shared: WallCore | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, bool):
            raise InvalidTrigger("seconds", self.seconds, "True or False")
        if not isinstance(self.expression, str):
            raise InvalidTrigger("expression", self.expression, "an expression as text")
        fields = fields_of(self.expression, seconds=self.seconds)
        if any(each.has_hash for each in fields):
            if self.limits.seed is None:
                self._set_core(None)
                return
            fields = tuple(each.resolve(self.limits.choose) for each in fields)
        self._set_core(cron_core(fields, self.wall))

    @property
    def words(self) -> str:
        """Return the expression in words."""
        return cron_words(self.expression, seconds=self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Return a versioned object that parse_trigger() reads back."""
        shown: dict[str, Any] = {"v": JSON_VERSION, "kind": "cron", "expression": self.expression}
        if self.seconds:
            shown["seconds"] = True
        return shown | self.wall.to_json() | self.limits.to_json()

    @property
    def _needs_seed(self) -> bool:
        fields = fields_of(self.expression, seconds=self.seconds)
        return self.limits.spread_ms > 0 or any(each.has_hash for each in fields)


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    gap: Gap = "next_valid",
    fold: Fold = "first",
    seconds: bool = False,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
    spread: timedelta | float | None = None,
) -> Cron:
    """Return a trigger for a cron expression, evaluated on the wall clock of a zone.

    Five fields: minute, hour, day of month, month, day of week; with seconds=True six, seconds
    first. `gap` decides when a local time runs that does not exist because of a clock change,
    `fold` which one of a local time that exists twice; an hour field that begins with `*` fires
    at every real match.
    """
    limits = Limits.of(start_at, end_at, spread)
    return Cron(expression, seconds, Wall(tz, gap, fold), limits)
