"""Station 8: how many schedules will fire in each minute to come. Pure.

Takes index rows by minute and some or all of them; gives fires per minute. First fires are known
from the index; later ones follow from the triggers of the rows at hand. Where those are a part
only, or fire too often to be followed one by one, the answer says that it is an estimate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from duly.errors import DulyError
from duly.glass_store import MINUTE_MS, Upcoming
from duly.occurrences import IndexRow, trigger_of
from duly.triggers import Trigger

DAY_MINUTES = 1_440
MAX_STEPS = 30_000
"""Times that are worked out for one forecast."""
MIN_STEPS = 4


@dataclass(frozen=True, slots=True)
class Forecast:
    """Fires per minute from an instant on."""

    start_ms: int
    """When the first minute begins."""
    minutes: tuple[int, ...]
    is_estimate: bool
    rows: int
    """Schedules that fire at least once in this time."""

    @property
    def total(self) -> int:
        """All fires."""
        return sum(self.minutes)

    @property
    def peak(self) -> tuple[int, int]:
        """When the busiest minute begins, and how many fire in it."""
        most = max(self.minutes, default=0)
        place = self.minutes.index(most) if self.minutes else 0
        return self.start_ms + place * MINUTE_MS, most


@dataclass(frozen=True, slots=True)
class _Rule:
    """What rows have in common that will fire at the same times."""

    trigger: str
    nominal_ms: int
    offset_ms: int
    runs_left: int | None


def forecast(upcoming: Upcoming, length: int = DAY_MINUTES) -> Forecast:
    """Fires per minute for so many minutes from now on; overdue ones count for the first."""
    start_ms = upcoming.now_ms // MINUTE_MS * MINUTE_MS
    fires = [0.0] * length
    for minute_ms, rows in upcoming.minutes:
        place = max(0, (minute_ms - start_ms) // MINUTE_MS)
        if place < length:
            fires[place] += rows
    rules = Counter(map(_rule, upcoming.sample))
    steps = max(MIN_STEPS, MAX_STEPS // max(1, len(rules)))
    is_estimate = upcoming.is_estimate or upcoming.share > 1
    for rule, rows in rules.items():
        is_whole = _follow(rule, rows * upcoming.share, (start_ms, fires), steps)
        is_estimate = is_estimate or not is_whole
    return Forecast(start_ms, tuple(round(each) for each in fires), is_estimate, upcoming.rows)


def _rule(row: IndexRow) -> _Rule:
    return _Rule(row.trigger, row.nominal_ms, row.run_at_ms - row.nominal_ms, row.runs_left)


def _follow(rule: _Rule, weight: float, window: tuple[int, list[float]], steps: int) -> bool:
    """Add the fires after the first; False where they were too many and the rest was guessed."""
    start_ms, fires = window
    end_ms = start_ms + len(fires) * MINUTE_MS
    trigger = _evaluable(rule.trigger)
    if trigger is None:
        return True
    most = steps if rule.runs_left is None else min(steps, rule.runs_left - 1)
    now_ms = max(rule.nominal_ms, start_ms - rule.offset_ms)
    last_ms = now_ms
    for _ in range(most):
        following = trigger.next_after_ms(last_ms)
        if following is None or following + rule.offset_ms >= end_ms:
            return True
        last_ms = following
        fires[(last_ms + rule.offset_ms - start_ms) // MINUTE_MS] += weight
    if most < steps:
        return True
    pace = weight * most * MINUTE_MS / max(1, last_ms - now_ms)
    _go_on(fires, pace, last_ms + rule.offset_ms - start_ms)
    return False


def _go_on(fires: list[float], per_minute: float, after_ms: int) -> None:
    """Let a rule that fires very often go on at the pace it had so far."""
    here, into_ms = divmod(after_ms, MINUTE_MS)
    fires[here] += per_minute * (1 - into_ms / MINUTE_MS)
    for place in range(here + 1, len(fires)):
        fires[place] += per_minute


def _evaluable(text: str) -> Trigger | None:
    """None for a rule that this release cannot read: it fires elsewhere, or not at all."""
    try:
        trigger = trigger_of(text)
    except DulyError:
        return None
    return trigger if trigger.is_bound else None
