"""Compiled wall-time rules in a zone.

A WallCore returns seconds and is shared by all triggers with the same rule, zone, gap and fold,
so that the bulk form can share their results too. It has no state.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import get_args

from duly.errors import InvalidTrigger
from duly.triggers.calendar import has_days
from duly.triggers.fields import Field, parse_fields
from duly.triggers.instants import NEVER
from duly.triggers.rules import NextWall, cron_rule, month_mask, weekly_rule
from duly.triggers.zone import STEADY_SHIFT, Fold, Gap, Zone, zone

CACHE_SIZE = 4096
"""Compiled rules kept per process. A rule beyond that is compiled again at each use."""


@dataclass(frozen=True, slots=True)
class Wall:
    """Conversion of wall time to instants: the zone, and the rules for clock changes."""

    tz: str = "UTC"
    gap: Gap = "next_valid"
    fold: Fold = "first"

    def __post_init__(self) -> None:
        named: tuple[tuple[str, object, tuple[str, ...]], ...] = (
            ("gap", self.gap, get_args(Gap)),
            ("fold", self.fold, get_args(Fold)),
        )
        for name, value, allowed in named:
            if value not in allowed:
                raise InvalidTrigger(name, value, ", ".join(allowed))
        tz: object = self.tz
        if not isinstance(tz, str):
            raise InvalidTrigger("tz", tz, "an IANA zone name as text")
        zone(tz)

    def to_json(self) -> dict[str, str]:
        """Return the zone, and gap and fold unless they are the default."""
        shown = {"tz": self.tz}
        if self.gap != "next_valid":
            shown["gap"] = self.gap
        if self.fold != "first":
            shown["fold"] = self.fold
        return shown


NextSeconds = Callable[[int], int]
"""First matching instant strictly after an instant, in seconds since 1970; END_S or more: none."""


@dataclass(slots=True, eq=False)
class WallCore:
    """A compiled rule in its zone, compared by identity so that sharing is cheap."""

    zone: Zone
    next_wall: NextWall
    gap: Gap
    fold: Fold
    is_open_hour: bool = False
    """The hour field begins with `*`: it fires at every real match, so no time is ever missed."""
    next_seconds: NextSeconds = field(init=False)

    def __post_init__(self) -> None:
        self.next_seconds = _compile(self.zone, self.next_wall, self.gap, self.fold)


def _compile(zone: Zone, next_wall: NextWall, gap: Gap, fold: Fold) -> NextSeconds:
    # Closures, not methods: this is the hottest path of the package, and their names are local.
    steady, steady_at = zone.steady, zone.steady_at

    def next_seconds(after: int) -> int:
        start, end, offset = steady[after >> STEADY_SHIFT]
        if start <= after:
            found = next_wall(after + offset) - offset
            if found < end:
                return found
        return next_far(after)

    def next_far(after: int) -> int:
        start, end, offset = steady_at(after)
        if start <= after < end:
            wall = next_wall(after + offset)
            # Nothing matches in between, so no clock change in between can matter.
            start, end, offset = steady_at(wall - offset)
            if start <= wall - offset < end:
                return wall - offset
        return zone.walk(after, next_wall, gap, fold)

    return next_seconds


@lru_cache(maxsize=CACHE_SIZE)
def fields_of(expression: str, *, seconds: bool) -> tuple[Field, ...]:
    """Return the parsed fields of an expression; refuse one that matches no day of any year."""
    fields = parse_fields(expression, seconds=seconds)
    # Every value of H must match some day. A larger day is never easier to match than a smaller
    # one, so checking the largest is enough; months have no such order, so each is tried.
    resolved = (_hardest(fields, month) for month in range(12 if fields[4].has_hash else 1))
    if not all(has_days(month_mask(each)) for each in resolved):
        # Day of month is the third field from the end; expressions with macros cannot fail here.
        position = [match.start() for match in re.finditer(r"[^ \t]+", expression)][-3]
        raise InvalidTrigger(
            "day of month",
            fields[3].text,
            "a day that a month of the month field has in some year",
            source=expression,
            position=position,
        )
    return fields


def _hardest(fields: tuple[Field, ...], month: int) -> tuple[Field, ...]:
    def choose(name: str, choices: int) -> int:
        return month % choices if name == "month" else choices - 1

    return tuple(field.resolve(choose) if field.has_hash else field for field in fields)


@lru_cache(maxsize=CACHE_SIZE)
def cron_core(fields: tuple[Field, ...], wall: Wall) -> WallCore:
    """Return the shared core of six resolved fields."""
    rule = cron_rule(fields)
    if fields[2].text.startswith("*"):
        # Every matching hour of real time: nothing can be missed in a gap or repeated in a fold.
        return WallCore(zone(wall.tz), rule, "skip", "both", is_open_hour=True)
    return WallCore(zone(wall.tz), rule, wall.gap, wall.fold)


@lru_cache(maxsize=CACHE_SIZE)
def once_core(wall_s: int, wall: Wall) -> WallCore:
    """Return the shared core of one wall time, in seconds since 1970 as if it were UTC."""

    def next_wall(after: int) -> int:
        return wall_s if after < wall_s else NEVER

    return WallCore(zone(wall.tz), next_wall, wall.gap, wall.fold)


@lru_cache(maxsize=CACHE_SIZE)
def weekly_core(minutes: tuple[int, ...], wall: Wall) -> WallCore:
    """Return the shared core of a weekly table."""
    return WallCore(zone(wall.tz), weekly_rule(minutes), wall.gap, wall.fold)
