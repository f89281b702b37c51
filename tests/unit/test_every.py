"""Tests of intervals: anchor + k · interval in elapsed time, worked out by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Every, InvalidInstant, InvalidTrigger, every

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
MS = timedelta(milliseconds=1)
QUARTER = timedelta(minutes=15)


@pytest.mark.parametrize(
    ("units", "interval_ms"),
    [
        ({"seconds": 1}, 1_000),
        ({"seconds": 1.5}, 1_500),
        ({"minutes": 15}, 900_000),
        ({"hours": 1, "minutes": 30}, 5_400_000),
        ({"days": 1}, 86_400_000),
        ({"weeks": 2}, 1_209_600_000),
        ({"weeks": 1, "days": 1, "hours": 1, "minutes": 1, "seconds": 1}, 694_861_000),
        ({"hours": 0.5}, 1_800_000),
        ({"days": 40 * 366}, 1_264_896_000_000),
    ],
)
def test_units_add_up(units: dict[str, float], interval_ms: int) -> None:
    assert every(**units).interval_ms == interval_ms  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (NOON - timedelta(days=365), NOON),  # nothing before the anchor, which is the first
        (NOON - MS, NOON),
        (NOON, NOON + QUARTER),
        (NOON + MS, NOON + QUARTER),
        (NOON + QUARTER - MS, NOON + QUARTER),
        (NOON + QUARTER, NOON + 2 * QUARTER),
        # A month late: the next time on the same grid, not one for each missed time.
        (NOON + timedelta(days=30, minutes=7), NOON + timedelta(days=30, minutes=15)),
    ],
)
def test_the_grid_begins_at_the_anchor(asked: datetime, expected: datetime) -> None:
    assert every(minutes=15, start_at=NOON).next_after(asked) == expected


def test_it_never_drifts() -> None:
    """A thousand answers, each asked for a little late, are still on the grid of the anchor."""
    trigger, asked = every(seconds=7, start_at=NOON), NOON
    for k in range(1, 1001):
        found = trigger.next_after(asked)
        assert found == NOON + k * timedelta(seconds=7)
        asked = found + timedelta(seconds=3)


def test_milliseconds_of_the_anchor_are_kept() -> None:
    anchor = NOON + timedelta(microseconds=123_456)
    expected = NOON + timedelta(milliseconds=123 + 900_000)
    assert every(minutes=15, start_at=anchor).next_after(NOON + timedelta(seconds=1)) == expected


def test_a_day_is_24_hours_across_clock_changes() -> None:
    """Berlin changes its clocks on 29 March 2026, so the local time changes from 09:00 to 10:00."""
    trigger = every(days=1, start_at=datetime(2026, 3, 28, 8, tzinfo=UTC))
    assert trigger.next_after(NOON + timedelta(days=22)) == datetime(2026, 3, 30, 8, tzinfo=UTC)
    assert trigger.tz == "UTC"


def test_an_end_is_inclusive() -> None:
    trigger = every(minutes=15, start_at=NOON, end_at=NOON + 2 * QUARTER)
    last = trigger.next_after(NOON + QUARTER)
    assert last == NOON + 2 * QUARTER
    assert trigger.next_after(NOON + 2 * QUARTER) is None
    earlier = every(minutes=15, start_at=NOON, end_at=NOON + 2 * QUARTER - MS)
    assert earlier.next_after(NOON + QUARTER) is None


def test_nothing_from_2200_on() -> None:
    trigger = every(days=365, start_at=NOON)
    assert trigger.next_after(datetime(2199, 12, 31, tzinfo=UTC)) is None


def test_without_an_anchor_it_must_be_bound() -> None:
    trigger = every(minutes=15)
    assert not trigger.is_bound
    with pytest.raises(InvalidTrigger, match=r"bind\(key, created_at\)") as caught:
        trigger.next_after(NOON)
    assert caught.value.field == "start_at"


def test_binding_makes_the_creation_the_anchor() -> None:
    trigger = every(minutes=15).bind("user:ada/poll", created_at=NOON)
    assert (trigger.is_bound, trigger.start_at) == (True, NOON)
    assert trigger.next_after(NOON) == NOON + QUARTER
    assert trigger == every(minutes=15, start_at=NOON)


def test_binding_keeps_a_given_anchor() -> None:
    trigger = every(minutes=15, start_at=NOON)
    assert trigger.bind("user:ada/poll", created_at=NOON + QUARTER) is trigger


@pytest.mark.parametrize(
    "created_at",
    [datetime(2026, 1, 1), datetime(1999, 1, 1, tzinfo=UTC)],  # noqa: DTZ001
)
def test_the_creation_time_must_be_a_valid_instant(created_at: datetime) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        every(minutes=15).bind("user:ada/poll", created_at=created_at)
    assert caught.value.field == "created_at"


def test_intervals_created_together_do_not_run_together() -> None:
    """All have the same anchor and grid, but a different run time for each key."""
    keys = [f"user:{number}/poll" for number in range(50)]
    triggers = [every(minutes=15, spread=60).bind(key, created_at=NOON) for key in keys]
    nominal = {trigger.next_after(NOON) for trigger in triggers}
    assert nominal == {NOON + QUARTER}
    runs = {trigger.run_at(NOON + QUARTER) for trigger in triggers}
    assert len(runs) > 45
    assert all(NOON + QUARTER <= run < NOON + QUARTER + timedelta(minutes=1) for run in runs)


def test_a_spread_does_not_shift_the_grid() -> None:
    """The next time is the same whether asked from the nominal time or the run time."""
    trigger = every(minutes=15, spread=60).bind("user:ada/poll", created_at=NOON)
    nominal = NOON
    for k in range(1, 101):
        following = NOON + k * QUARTER
        assert trigger.next_after(nominal) == following
        assert trigger.next_after(trigger.run_at(nominal)) == following
        nominal = following


BAD_UNITS: list[tuple[dict[str, Any], str]] = [
    ({}, "interval"),
    ({"seconds": 0}, "interval"),
    ({"seconds": 0.9994}, "interval"),
    ({"days": 40 * 366, "seconds": 1}, "interval"),
    ({"seconds": -1}, "seconds"),
    ({"minutes": 1, "seconds": -30}, "seconds"),
    ({"hours": float("nan")}, "hours"),
    ({"hours": float("inf")}, "hours"),
    ({"hours": 1e300}, "hours"),
    ({"days": "1"}, "days"),
    ({"days": None}, "days"),
    ({"weeks": True}, "weeks"),
]


@pytest.mark.parametrize(("units", "field"), BAD_UNITS)
def test_refused_intervals(units: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        every(**units)
    assert caught.value.field == field


@pytest.mark.parametrize("interval_ms", [999, 1_264_896_000_001, 1000.0, True, None])
def test_refused_milliseconds(interval_ms: Any) -> None:
    with pytest.raises(InvalidTrigger, match="1 second to 40 years, in whole milliseconds"):
        Every(interval_ms)


def test_refused_questions() -> None:
    trigger = every(minutes=15, start_at=NOON)
    for asked in (datetime(1969, 12, 31, tzinfo=UTC), datetime(2026, 1, 1)):  # noqa: DTZ001
        with pytest.raises(InvalidInstant):
            trigger.next_after(asked)


def test_equal_by_value_and_hashable() -> None:
    assert len({every(minutes=15), every(seconds=900), every(hours=0.25)}) == 1
    assert every(minutes=15) != every(minutes=15, start_at=NOON)
