"""A model of edits, derived only from the times of triggers, the edits, and which runs had begun.

`Expected` follows one schedule over its life and computes the expected ledger state of each nominal
time. It uses neither the rules nor the engine. It models schedules without misfires: every time
runs, unless it is withdrawn or the schedule is paused.
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
    """Return whether a trigger has this nominal time."""
    return trigger.next_after_ms(ms - 1) == ms


def times(trigger: Trigger, after_ms: int, upto_ms: int) -> Iterator[int]:
    """Yield the nominal times whose run times lie after an instant and up to another."""
    found = trigger.next_after_ms(after_ms - trigger.offset_ms)
    while found is not None and found + trigger.offset_ms <= upto_ms:
        yield found
        found = trigger.next_after_ms(found)


class Expected:
    """The expected ledger of one schedule."""

    def __init__(
        self, trigger: Trigger, now_ms: int, *, enabled: bool, max_runs: int | None
    ) -> None:
        self.trigger = trigger
        self.enabled = enabled
        self.max_runs = max_runs
        self.is_deleted = False
        self.states: dict[int, str] = {}
        """State by nominal time, for times that have come or were withdrawn just before."""
        self._begun: set[int] = set()
        self._since_ms = now_ms
        """Later times have not been processed yet."""
        self._swallowed: list[tuple[Trigger, int, int]] = []
        """Triggers during the current pause, each with the interval in which it applied."""

    def advance(self, now_ms: int) -> None:
        """Process the times up to now."""
        if self.enabled and not self.is_deleted:
            for ms in times(self.trigger, self._since_ms, now_ms):
                self._come(ms)
            self._since_ms = now_ms

    def _come(self, ms: int) -> None:
        if self.states.get(ms) not in (RUNS, PAUSED) and self._has_runs_left():
            self.states[ms] = RUNS

    def _has_runs_left(self) -> bool:
        runs = sum(state == RUNS for state in self.states.values())
        return self.max_runs is None or runs < self.max_runs

    def begin(self, ms: int) -> None:
        """Record that the run of a nominal time begins."""
        assert self.states.get(ms) == RUNS, f"{ms} began, but is {self.states.get(ms)}"
        assert ms not in self._begun, f"{ms} began twice"
        self._begun.add(ms)

    def retime(self, trigger: Trigger, now_ms: int) -> None:
        """Change the trigger. Runs not begun stay if the new trigger has the same nominal time."""
        self.advance(now_ms)
        old, self.trigger = self.trigger, trigger
        if not self.enabled:
            self._swallowed.append((old, self._since_ms, now_ms))
            self._since_ms = now_ms
            return
        for ms in self._unbegun():
            if not has(trigger, ms):
                self.states[ms] = WITHDRAWN
            elif ms + trigger.offset_ms > now_ms:
                del self.states[ms]  # it comes again
        # Nominal times that have passed, but whose run time, with the spread, has not.
        for ms in [each for each in times(old, now_ms, now_ms + old.offset_ms) if each <= now_ms]:
            if has(trigger, ms) and ms + trigger.offset_ms <= now_ms:
                self._come(ms)
            elif not has(trigger, ms) and self.max_runs is None:
                self.states.setdefault(ms, WITHDRAWN)

    def pause(self, now_ms: int) -> None:
        """Disable the schedule. Runs not begun are withdrawn."""
        self.advance(now_ms)
        self._withdraw()
        self.enabled, self._since_ms, self._swallowed = False, now_ms, []

    def resume(self, now_ms: int) -> None:
        """Enable the schedule. Times during the pause, of each trigger, were missed."""
        for trigger, since_ms, upto_ms in [
            *self._swallowed,
            (self.trigger, self._since_ms, now_ms),
        ]:
            for ms in times(trigger, since_ms, upto_ms):
                if self.states.get(ms) != RUNS and self._has_runs_left():
                    self.states[ms] = PAUSED
        self.enabled, self._since_ms = True, now_ms

    def delete(self, now_ms: int) -> None:
        """Delete the schedule. Runs not begun are withdrawn."""
        self.advance(now_ms)
        self._withdraw()
        self.is_deleted = True

    def _withdraw(self) -> None:
        self.states |= dict.fromkeys(self._unbegun(), WITHDRAWN)

    def _unbegun(self) -> list[int]:
        return [ms for ms, state in self.states.items() if state == RUNS and ms not in self._begun]

    def check(self, ledger: Iterable[Occurrence], now_ms: int) -> None:
        """Compare with a ledger that a planner has brought up to date."""
        self.advance(now_ms)
        rows = list(ledger)
        check_apart(rows)
        for ms, state in self.states.items():
            covering = [_kind(row) for row in rows if row.covers(ms)]
            if covering == [RUNS] and state == WITHDRAWN and self._is_to_come(ms, now_ms):
                continue  # a later trigger has this time again, and it was planned ahead
            assert covering == [state], f"{ms} is {covering}, not {state}"
        for row in rows:
            covered = [ms for ms in self.states if row.covers(ms)]
            if covered:
                assert len(covered) == row.count, f"{row} covers {covered}"
            else:
                is_ahead = row.state is OccurrenceState.PLANNED
                is_ahead = is_ahead and self._is_to_come(row.nominal_ms, now_ms)
                assert is_ahead or _kind(row) == WITHDRAWN, f"unexpected: {row}"

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
