"""Tests of spans of times: the rest after some are taken, by hand and by listing all times."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly import cron, every
from duly.model.index_rows import MAX_MISSED, trigger_text
from duly.rules.spans import Span, span, span_until, spans_left
from duly.triggers.instants import to_ms

START_MS = to_ms(datetime(2026, 3, 2, 12, tzinfo=UTC))
MINUTE_MS = 60_000
MINUTELY = trigger_text(cron("* * * * *"))
SECONDLY = trigger_text(cron("* * * * * *", seconds=True))


def at(minutes: float) -> int:
    return START_MS + int(minutes * MINUTE_MS)


def shown(spans: list[Span]) -> list[tuple[float, float, int]]:
    return [
        ((a - START_MS) / MINUTE_MS, (b - START_MS) / MINUTE_MS, count) for a, b, count in spans
    ]


def test_a_span_counts_both_ends() -> None:
    assert span(MINUTELY, at(1), at(5)) == Span(at(1), at(5), 5)
    assert span(MINUTELY, at(1), at(1)) == Span(at(1), at(1), 1)
    assert span_until(MINUTELY, at(1), at(5)) == Span(at(1), at(4), 4)
    assert span_until(MINUTELY, at(1), at(1) + 1) == Span(at(1), at(1), 1)


def test_long_spans_are_counted_up_to_a_limit() -> None:
    week_ms = 7 * 24 * 60 * MINUTE_MS
    assert span(SECONDLY, START_MS, START_MS + week_ms).times == MAX_MISSED
    interval = trigger_text(every(seconds=1, start_at=datetime(2026, 3, 2, 12, tzinfo=UTC)))
    assert span(interval, START_MS, START_MS + week_ms).times == week_ms // 1_000 + 1


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], [(1, 9, 9)]),
        ([(0, 0), (10, 12)], [(1, 9, 9)]),
        ([(5, 5)], [(1, 4, 4), (6, 9, 4)]),
        ([(1, 1)], [(2, 9, 8)]),
        ([(9, 9)], [(1, 8, 8)]),
        ([(0, 3)], [(4, 9, 6)]),
        ([(7, 20)], [(1, 6, 6)]),
        ([(1, 9)], []),
        ([(0, 20)], []),
        ([(2, 2), (3, 3), (5, 7)], [(1, 1, 1), (4, 4, 1), (8, 9, 2)]),
        ([(5, 7), (2, 2)], [(1, 1, 1), (3, 4, 2), (8, 9, 2)]),
        # An extra run between two times splits the span but takes no time of it.
        ([(4.5, 4.5)], [(1, 4, 4), (5, 9, 5)]),
        ([(0.5, 0.5), (9.5, 9.5)], [(1, 9, 9)]),
    ],
)
def test_rest_of_a_span(
    taken: list[tuple[float, float]], expected: list[tuple[float, float, int]]
) -> None:
    whole = span(MINUTELY, at(1), at(9))
    left = spans_left(MINUTELY, whole, [(at(first), at(last)) for first, last in taken])
    assert shown(left) == expected


def test_a_whole_span_keeps_its_count() -> None:
    """The first time of a span may not be a time of the rule."""
    whole = Span(at(1) + 5, at(3), 3)
    assert spans_left(MINUTELY, whole, []) == [whole]


POINTS = st.lists(st.integers(0, 40), unique=True, max_size=12).map(sorted)


@given(st.integers(1, 20), st.integers(0, 20), POINTS)
def test_every_time_is_left_or_taken(first: int, length: int, points: list[int]) -> None:
    taken = list(zip(points[::2], points[1::2], strict=False))
    whole = span(MINUTELY, at(first), at(first + length))
    left = spans_left(MINUTELY, whole, [(at(a), at(b)) for a, b in taken])
    for minute in range(first, first + length + 1):
        is_taken = any(a <= minute <= b for a, b in taken)
        assert sum(each.first_ms <= at(minute) <= each.last_ms for each in left) == (not is_taken)
    free = [
        minute
        for minute in range(first, first + length + 1)
        if not any(a <= minute <= b for a, b in taken)
    ]
    assert sum(each.times for each in left) == len(free)
