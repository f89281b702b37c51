"""Next times of many triggers at once.

Rows with the same wall-clock rule share the work: between two fires of a rule every instant has
the same answer, and in a planner's short window most rules do not fire at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from duly.triggers.core import WallCore
from duly.triggers.instants import END_MS, check_asked
from duly.triggers.trigger import Trigger

MAX_FIRES = 128
"""A rule that fires more often than this among the instants is evaluated row by row."""


def next_after_many(triggers: Sequence[Trigger], instants_ms: Sequence[int]) -> list[int | None]:
    """Return the result of next_after_ms() for each pair, in the same order."""
    if len(triggers) != len(instants_ms):
        raise ValueError(f"{len(triggers)} triggers but {len(instants_ms)} instants")
    if not triggers:
        return []
    # A claim returns them in order; sorting sorted values is cheaper than min() and max().
    ascending = sorted(instants_ms)
    first, last = ascending[0], ascending[-1]
    check_asked(first)
    check_asked(last)
    cores: list[WallCore | None] = [trigger.shared for trigger in triggers]
    settled, several = _answers({core for core in set(cores) if core is not None}, first, last)
    answers: list[int | None] = list(map(settled.get, cores))
    for i in _positions(answers):
        times, ms = several.get(cores[i]), instants_ms[i]
        answers[i] = times[bisect_right(times, ms)] if times else triggers[i].next_after_ms(ms)
    return answers


def _answers(
    cores: set[WallCore], first_ms: int, last_ms: int
) -> tuple[dict[WallCore | None, int], dict[WallCore | None, list[int]]]:
    """Return rules with one next time for all instants, and those with several, in order."""
    settled: dict[WallCore | None, int] = {}
    several: dict[WallCore | None, list[int]] = {}
    after = first_ms // 1000
    for core in cores:
        found = core.next_seconds(after) * 1000
        if found <= last_ms:
            several[core] = _fires(core, found, last_ms)
        elif found < END_MS:
            settled[core] = found
    return settled, several


def _fires(core: WallCore, first_ms: int, last_ms: int) -> list[int]:
    """Return a rule's times from `first_ms` to the first after `last_ms`; [] if too many."""
    times = [first_ms]
    while times[-1] <= last_ms:
        times.append(core.next_seconds(times[-1] // 1000) * 1000)
        if len(times) > MAX_FIRES or times[-1] >= END_MS:
            return []
    return times


def _positions(answers: list[int | None]) -> Iterator[int]:
    """Yield positions without an answer; list.index() skips the others in C."""
    i = -1
    while True:
        try:
            i = answers.index(None, i + 1)
        except ValueError:
            return
        yield i
