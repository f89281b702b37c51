"""Runs of times in the ledger, and the parts left when some of their times have rows.

A rule is a bound trigger's text. The given first and last time of a run count as times even if the
rule has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duly.model.index_rows import trigger_of
from duly.rules.planning import PlannedOccurrence, count_times, newest_times


class Span(NamedTuple):
    """A run of nominal times: first, last, and their number (at least)."""

    first_ms: int
    last_ms: int
    times: int


class Row(NamedTuple):
    """A row of the ledger: first and last time, and whether they may not be replaced."""

    first_ms: int
    last_ms: int
    is_taken: bool


def in_the_way(rule: str, rows: Iterable[Row]) -> list[tuple[int, int]]:
    """Return first and last times of rows that a run of the rule's times must leave out.

    These are taken rows, and rows of an earlier rule's times: their outcome would be lost with the
    row.
    """
    trigger = trigger_of(rule)
    return [
        (row.first_ms, row.last_ms)
        for row in rows
        if row.is_taken or trigger.next_after_ms(row.first_ms - 1) != row.first_ms
    ]


def span(rule: str, first_ms: int, last_ms: int) -> Span:
    """Return the run from one time to another, inclusive."""
    return Span(first_ms, last_ms, count_times(rule, first_ms, last_ms))


def span_until(rule: str, first_ms: int, end_ms: int) -> Span:
    """Return the run from a time to the last one before `end_ms`."""
    return span(rule, first_ms, newest_times(rule, first_ms, end_ms, 1)[-1])


def spans_left(rule: str, whole: Span, taken: Iterable[tuple[int, int]]) -> list[Span]:
    """Return the parts of a run outside `taken`, which are (first, last) and do not overlap.

    Taken times that the rule does not have (extras, an earlier rule's) also split it, because rows
    may not overlap.
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
    rule: str, occurrences: Sequence[PlannedOccurrence], rows: Sequence[Row]
) -> list[PlannedOccurrence]:
    """Return the occurrences without a taken row; of a run of times, the parts left."""
    free: list[PlannedOccurrence] = []
    for each in occurrences:
        if each.until_ms > each.nominal_ms:
            whole = Span(each.nominal_ms, each.until_ms, each.count)
            free += [_part(each, left) for left in spans_left(rule, whole, in_the_way(rule, rows))]
        elif not any(
            row.first_ms <= each.nominal_ms <= row.last_ms for row in rows if row.is_taken
        ):
            free.append(each)
    return free


def _part(occurrence: PlannedOccurrence, left: Span) -> PlannedOccurrence:
    return occurrence._replace(
        nominal_ms=left.first_ms,
        until_ms=left.last_ms,
        count=left.times,
        run_at_ms=left.first_ms + occurrence.run_at_ms - occurrence.nominal_ms,
    )
