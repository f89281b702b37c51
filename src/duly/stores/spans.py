"""Runs of times in the ledger: what of one is left when some of its times have rows. Pure.

The rule is a bound trigger's text. The first and the last time of a run are given, and count as
times even where the rule was changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duly.occurrences import trigger_of
from duly.planning import PlannedOccurrence, count_times, newest_times


class Span(NamedTuple):
    """A run of nominal times: the first, the last, and how many at least."""

    first_ms: int
    last_ms: int
    times: int


def span(rule: str, first_ms: int, last_ms: int) -> Span:
    """The run from one time to another, both included."""
    return Span(first_ms, last_ms, count_times(rule, first_ms, last_ms))


def span_until(rule: str, first_ms: int, end_ms: int) -> Span:
    """The run from a time to the last one before `end_ms`, which lies after it."""
    return span(rule, first_ms, newest_times(rule, first_ms, end_ms, 1)[-1])


def spans_left(rule: str, whole: Span, taken: Iterable[tuple[int, int]]) -> list[Span]:
    """What of a run is in none of the taken ones, which are (first, last) and do not overlap.

    Those that the rule does not have (extras, an earlier rule's) part it too: no rows overlap.
    """
    trigger = trigger_of(rule)
    left: list[Span] = []
    start_ms: int | None = whole.first_ms
    for first_ms, last_ms in sorted(taken):
        if start_ms is None or last_ms < start_ms or first_ms > whole.last_ms:
            continue
        if start_ms < first_ms:
            left.append(span_until(rule, start_ms, first_ms))
        start_ms = trigger.next_after_ms(last_ms)
    if start_ms is not None and start_ms <= whole.last_ms:
        whole_is_left = start_ms == whole.first_ms
        left.append(whole if whole_is_left else span(rule, start_ms, whole.last_ms))
    return left


def free_of(
    rule: str, occurrences: Sequence[PlannedOccurrence], taken: Sequence[tuple[int, int]]
) -> list[PlannedOccurrence]:
    """Occurrences of one schedule that no taken run of times has; of a run, what is left."""
    free: list[PlannedOccurrence] = []
    for each in occurrences:
        if each.until_ms == each.nominal_ms:
            if not any(first_ms <= each.nominal_ms <= last_ms for first_ms, last_ms in taken):
                free.append(each)
            continue
        whole = Span(each.nominal_ms, each.until_ms, each.count)
        free += [_part(each, left) for left in spans_left(rule, whole, taken)]
    return free


def _part(occurrence: PlannedOccurrence, left: Span) -> PlannedOccurrence:
    return occurrence._replace(
        nominal_ms=left.first_ms,
        until_ms=left.last_ms,
        count=left.times,
        run_at_ms=left.first_ms + occurrence.run_at_ms - occurrence.nominal_ms,
    )
