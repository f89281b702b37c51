"""Tests of times missed in a pause, by the rules that applied during it."""

from datetime import UTC, datetime

import pytest

from duly import cron
from duly.rules.rule_history import Change, Lost, lost_times
from duly.rules.spans import Span
from duly.triggers.instants import to_ms

START_MS = to_ms(datetime(2026, 3, 2, 12, tzinfo=UTC))
MINUTE_MS = 60_000
MINUTELY, HOURLY = cron("* * * * *"), cron("0 * * * *")


def at(minutes: float) -> int:
    return START_MS + int(minutes * MINUTE_MS)


def spans(found: list[Lost]) -> list[Span]:
    return [each.whole for each in found]


def test_each_rule_has_the_times_until_it_was_changed() -> None:
    changes = [Change(at(5), MINUTELY.to_json())]
    found = lost_times(HOURLY, at(0), changes, at(130))
    assert spans(found) == [Span(at(1), at(5), 5), Span(at(60), at(120), 2)]


@pytest.mark.parametrize("changed", [10, 11, 60])
def test_no_time_after_now_is_lost(changed: float) -> None:
    """A change may be later than now if it was made by a host with another clock."""
    changes = [Change(at(changed), MINUTELY.to_json())]
    found = lost_times(HOURLY, at(0), changes, at(9.5))
    assert spans(found) == [Span(at(1), at(9), 9)]


def test_nothing_is_lost_to_a_pause_later_than_now() -> None:
    changes = [Change(at(20), MINUTELY.to_json())]
    assert lost_times(HOURLY, at(15), changes, at(9.5)) == []
