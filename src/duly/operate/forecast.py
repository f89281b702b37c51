"""Forecast of fires per minute. Pure.

First fires are counted from the index; later ones are computed from the triggers of the given
rows. If these are only a sample, or fire too often to be computed one by one, the forecast is
marked as an estimate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from duly.errors import DulyError
from duly.model.index_rows import IndexRow, trigger_of
from duly.model.summaries import MINUTE_MS, Upcoming
from duly.triggers import Trigger

DAY_MINUTES = 1_440
MAX_STEPS = 30_000
"""Limit of trigger steps per forecast."""
MIN_STEPS = 4


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected fires per minute."""

    start_ms: int
    """Beginning of the first minute."""
    minutes: tuple[int, ...]
    is_estimate: bool
    rows: int
    """Schedules that fire at least once in the period."""
    is_sample: bool = False
    """It is extrapolated from a sample of the schedules."""

    @property
    def total(self) -> int:
        """Sum of all fires."""
        return sum(self.minutes)

    @property
    def peak(self) -> tuple[int, int]:
        """Beginning of the busiest minute, and its fires."""
        most = max(self.minutes, default=0)
        place = self.minutes.index(most) if self.minutes else 0
        return self.start_ms + place * MINUTE_MS, most


@dataclass(frozen=True, slots=True)
class _Rule:
    """Grouping key of rows that fire at the same times."""

    trigger: str
    nominal_ms: int
    offset_ms: int
    runs_left: int | None


def forecast(upcoming: Upcoming, length: int = DAY_MINUTES) -> Forecast:
    """Return fires per minute for the next `length` minutes; overdue rows count in the first."""
    start_ms = upcoming.now_ms // MINUTE_MS * MINUTE_MS
    fires = [0.0] * length
    for minute_ms, rows in upcoming.minutes:
        place = max(0, (minute_ms - start_ms) // MINUTE_MS)
        if place < length:
            fires[place] += rows
    is_sample = upcoming.is_estimate or upcoming.share > 1
    walks = [
        _Walk(rule, rows * upcoming.share, start_ms, fires)
        for rule, rows in Counter(map(_rule, upcoming.sample)).items()
    ]
    unfinished = _walk_all(walks)
    for walk in unfinished:
        walk.extrapolate()
    is_estimate = is_sample or bool(unfinished)
    minutes = tuple(round(each) for each in fires)
    return Forecast(start_ms, minutes, is_estimate, upcoming.rows, is_sample)


def _rule(row: IndexRow) -> _Rule:
    return _Rule(row.trigger, row.nominal_ms, row.run_at_ms - row.nominal_ms, row.runs_left)


def _walk_all(walks: list[_Walk]) -> list[_Walk]:
    """Compute the fires of all rules within MAX_STEPS; return the unfinished ones.

    Steps that infrequent rules leave unused go to frequent ones.
    """
    budget, active = MAX_STEPS, walks
    share = max(MIN_STEPS, budget // max(1, len(active)))
    while active and share > 0:
        left: list[_Walk] = []
        for walk in active:
            taken = walk.steps
            if not walk.go(share):
                left.append(walk)
            budget -= walk.steps - taken
        active = left
        share = max(0, budget) // max(1, len(active))
    return active


class _Walk:
    """Iteration of one rule over the period; its first fire is already counted."""

    def __init__(self, rule: _Rule, weight: float, start_ms: int, fires: list[float]) -> None:
        self._trigger = _evaluable(rule.trigger)
        self._offset_ms = rule.offset_ms
        self._runs_left = rule.runs_left
        self._weight = weight
        self._start_ms = start_ms
        self._fires = fires
        self._began_ms = self._last_ms = max(rule.nominal_ms, start_ms - rule.offset_ms)
        self.steps = 0

    def go(self, steps: int) -> bool:
        """Add up to `steps` further fires; return whether there are no more."""
        end_ms = self._start_ms + len(self._fires) * MINUTE_MS
        for _ in range(steps):
            if self._trigger is None or self._is_used_up:
                return True
            following = self._trigger.next_after_ms(self._last_ms)
            if following is None or following + self._offset_ms >= end_ms:
                return True
            self._last_ms = following
            self.steps += 1
            place = (following + self._offset_ms - self._start_ms) // MINUTE_MS
            self._fires[place] += self._weight
        return self._is_used_up

    @property
    def _is_used_up(self) -> bool:
        return self._runs_left is not None and self.steps >= self._runs_left - 1

    def extrapolate(self) -> None:
        """Extend a very frequent rule to the end of the period at its average rate so far."""
        taken_ms = max(1, self._last_ms - self._began_ms)
        pace = self._weight * self.steps * MINUTE_MS / taken_ms
        _continue(self._fires, pace, self._last_ms + self._offset_ms - self._start_ms)


def _continue(fires: list[float], per_minute: float, after_ms: int) -> None:
    """Add a constant rate of fires from `after_ms` to the end of the period."""
    here, into_ms = divmod(after_ms, MINUTE_MS)
    fires[here] += per_minute * (1 - into_ms / MINUTE_MS)
    for place in range(here + 1, len(fires)):
        fires[place] += per_minute


def _evaluable(text: str) -> Trigger | None:
    """Return the trigger, or None if this release cannot read it or it is unbound."""
    try:
        trigger = trigger_of(text)
    except DulyError:
        return None
    return trigger if trigger.is_bound else None
