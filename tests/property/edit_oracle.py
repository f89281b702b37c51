"""What edits mean, from first principles: the trigger's own times, the edits, and what had begun.

`Expected` follows one schedule over its life and says of each nominal time what its ledger must
say. It imports neither rules nor engine. It knows schedules that nothing makes late: of those every
time that comes runs, unless somebody took it back or the schedule was paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from duly.model.ledger import Occurrence, OccurrenceState
from duly.triggers import Trigger

RUNS, PAUSED, WITHDRAWN = "runs", "missed in a pause", "withdrawn"
_KINDS = {
    OccurrenceState.PLANNED: RUNS,
    OccurrenceState.FIRED: RUNS,
    OccurrenceState.SUCCEEDED: RUNS,
    OccurrenceState.FAILED: RUNS,
    OccurrenceState.WITHDRAWN: WITHDRAWN,
}


def has(trigger: Trigger, ms: int) -> bool:
    """Return whether a time is one of a trigger's."""
    return trigger.next_after_ms(ms - 1) == ms


def times(trigger: Trigger, after_ms: int, upto_ms: int) -> Iterator[int]:
    """Yield the nominal times whose run times lie after an instant and up to another."""
    found = trigger.next_after_ms(after_ms - trigger.offset_ms)
    while found is not None and found + trigger.offset_ms <= upto_ms:
        yield found
        found = trigger.next_after_ms(found)


class Expected:
    """What the ledger of one schedule must say."""

    def __init__(
        self, trigger: Trigger, now_ms: int, *, enabled: bool, max_runs: int | None
    ) -> None:
        self.trigger = trigger
        self.enabled = enabled
        self.max_runs = max_runs
        self.is_deleted = False
        self.fates: dict[int, str] = {}
        """By nominal time, of those that have come or were taken back when they were about to."""
        self._begun: set[int] = set()
        self._since_ms = now_ms
        """Times that come after it are still to be looked at."""
        self._swallowed: list[tuple[Trigger, int, int]] = []
        """Triggers of the pause that is on, each with the time that it was in force."""

    def advance(self, now_ms: int) -> None:
        """Let time go on."""
        if self.enabled and not self.is_deleted:
            for ms in times(self.trigger, self._since_ms, now_ms):
                self._come(ms)
            self._since_ms = now_ms

    def _come(self, ms: int) -> None:
        if self.fates.get(ms) not in (RUNS, PAUSED) and self._has_runs_left():
            self.fates[ms] = RUNS

    def _has_runs_left(self) -> bool:
        runs = sum(fate == RUNS for fate in self.fates.values())
        return self.max_runs is None or runs < self.max_runs

    def begin(self, ms: int) -> None:
        """Record that the run of a time begins."""
        assert self.fates.get(ms) == RUNS, f"{ms} began, but is {self.fates.get(ms)}"
        assert ms not in self._begun, f"{ms} began twice"
        self._begun.add(ms)

    def retime(self, trigger: Trigger, now_ms: int) -> None:
        """Change the trigger: what has not begun stays where the new one has that time too."""
        self.advance(now_ms)
        old, self.trigger = self.trigger, trigger
        if not self.enabled:
            self._swallowed.append((old, self._since_ms, now_ms))
            self._since_ms = now_ms
            return
        for ms in self._unbegun():
            if not has(trigger, ms):
                self.fates[ms] = WITHDRAWN
            elif ms + trigger.offset_ms > now_ms:
                del self.fates[ms]  # it comes once more
        # Those that have passed, though what they were spread by has not.
        for ms in [each for each in times(old, now_ms, now_ms + old.offset_ms) if each <= now_ms]:
            if has(trigger, ms) and ms + trigger.offset_ms <= now_ms:
                self._come(ms)
            elif not has(trigger, ms) and self.max_runs is None:
                self.fates.setdefault(ms, WITHDRAWN)

    def pause(self, now_ms: int) -> None:
        """Disable it: what has not begun is taken back."""
        self.advance(now_ms)
        self._take_back()
        self.enabled, self._since_ms, self._swallowed = False, now_ms, []

    def resume(self, now_ms: int) -> None:
        """Enable it: what came meanwhile, under each trigger, was missed."""
        for trigger, since_ms, upto_ms in [
            *self._swallowed,
            (self.trigger, self._since_ms, now_ms),
        ]:
            for ms in times(trigger, since_ms, upto_ms):
                if self.fates.get(ms) != RUNS and self._has_runs_left():
                    self.fates[ms] = PAUSED
        self.enabled, self._since_ms = True, now_ms

    def delete(self, now_ms: int) -> None:
        """Delete it: what has not begun is taken back."""
        self.advance(now_ms)
        self._take_back()
        self.is_deleted = True

    def _take_back(self) -> None:
        self.fates |= dict.fromkeys(self._unbegun(), WITHDRAWN)

    def _unbegun(self) -> list[int]:
        return [ms for ms, fate in self.fates.items() if fate == RUNS and ms not in self._begun]

    def check(self, ledger: Iterable[Occurrence], now_ms: int) -> None:
        """Compare with a ledger that a planner has been over."""
        self.advance(now_ms)
        rows = list(ledger)
        check_apart(rows)
        for ms, fate in self.fates.items():
            covering = [_kind(row) for row in rows if row.covers(ms)]
            if covering == [RUNS] and fate == WITHDRAWN and self._is_to_come(ms, now_ms):
                continue  # the trigger of a later edit has it again, and it was planned ahead
            assert covering == [fate], f"{ms} is {covering}, not {fate}"
        for row in rows:
            told = [ms for ms in self.fates if row.covers(ms)]
            if told:
                assert len(told) == row.count, f"{row} covers {told}"
            else:
                is_ahead = row.state is OccurrenceState.PLANNED
                is_ahead = is_ahead and self._is_to_come(row.nominal_ms, now_ms)
                assert is_ahead or _kind(row) == WITHDRAWN, f"unasked: {row}"

    def _is_to_come(self, ms: int, now_ms: int) -> bool:
        is_active = self.enabled and not self.is_deleted
        return is_active and ms + self.trigger.offset_ms > now_ms and has(self.trigger, ms)


def check_apart(ledger: Iterable[Occurrence]) -> None:
    """Check that rows of one schedule do not overlap."""
    for one, another in pairwise(sorted(ledger, key=lambda row: row.nominal_ms)):
        assert one.until_ms < another.nominal_ms, f"covered twice: {one}, {another}"


def _kind(row: Occurrence) -> str:
    if row.state is OccurrenceState.MISSED and row.reason == "paused":
        return PAUSED
    return _KINDS.get(row.state, row.state.value)
