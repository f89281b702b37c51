"""Tests of weekly tables: days, refusals, and next times."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import InvalidTrigger, weekly
from duly.triggers.weekly import DAYS
from duly.triggers.zone import Fold, Gap

# A Saturday.
BASE = datetime(2026, 3, 7, 12, tzinfo=UTC)
GAPS: tuple[Gap, ...] = ("next_valid", "shift", "skip")
FOLDS: tuple[Fold, ...] = ("first", "second", "both")


def fires(trigger: Any, after: datetime, n: int) -> list[str]:
    found = [f"{each:%m-%d %H:%M}" for each in trigger.between(after, after + timedelta(days=60))]
    return found[:n]


def test_a_day_is_on_if_it_has_a_time() -> None:
    trigger = weekly({"mon": "09:00", "tue": None})
    assert fires(trigger, BASE, 3) == ["03-09 09:00", "03-16 09:00", "03-23 09:00"]


def test_several_times_a_day_in_any_order() -> None:
    trigger = weekly({"thu": ["17:30", "09:00"], "mon": "09:00"})
    expected = ["03-09 09:00", "03-12 09:00", "03-12 17:30", "03-16 09:00"]
    assert fires(trigger, BASE, 4) == expected
    assert trigger.times[DAYS.index("thu")] == ("09:00", "17:30")


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("mon", "03-09 12:00"),
        ("tue", "03-10 12:00"),
        ("wed", "03-11 12:00"),
        ("thu", "03-12 12:00"),
        ("fri", "03-13 12:00"),
        ("sat", "03-14 12:00"),  # strictly after: not the instant asked about
        ("sun", "03-08 12:00"),
    ],
)
def test_each_day_of_the_week(day: str, expected: str) -> None:
    assert fires(weekly({day: "12:00"}), BASE, 1) == [expected]


def test_the_first_and_the_last_minute_of_the_week() -> None:
    trigger = weekly({"mon": "00:00", "sun": "23:59"})
    assert fires(trigger, BASE, 3) == ["03-08 23:59", "03-09 00:00", "03-15 23:59"]


@pytest.mark.parametrize(
    "days", [{}, dict.fromkeys(DAYS), {"mon": []}, {"mon": None, "sun": ()}], ids=str
)
def test_no_day_on_is_an_answer(days: dict[str, Any]) -> None:
    trigger = weekly(days, tz="Europe/Berlin")
    assert trigger.next_after(BASE) is None
    assert trigger.next_after_ms(0) is None
    assert trigger.words == "Never (no day has a time)"


REFUSED = [
    # Nothing but HH:MM is a time.
    ({"mon": ""}, "mon", ""),
    ({"mon": "25:99"}, "mon", "25:99"),
    ({"mon": "24:00"}, "mon", "24:00"),
    ({"mon": "09:60"}, "mon", "09:60"),
    ({"mon": "9:00"}, "mon", "9:00"),
    ({"mon": "09:00:00"}, "mon", "09:00:00"),
    ({"mon": "09:00\n"}, "mon", "09:00\n"),
    ({"mon": " 09:00"}, "mon", " 09:00"),
    ({"mon": "0900"}, "mon", "0900"),
    ({"mon": "9am"}, "mon", "9am"),
    ({"mon": "\u0660\u0669:00"}, "mon", "\u0660\u0669:00"),
    ({"tue": ["09:00", "x"]}, "tue", "x"),
    ({"tue": ["09:00", None]}, "tue", "None"),
    ({"tue": ["09:00", "10:00", "09:00"]}, "tue", "09:00"),
    ({"tue": 9}, "tue", "9"),
    ({"tue": True}, "tue", "True"),
    ({"tue": ["00:00"] * 1441}, "tue", str(["00:00"] * 10)[:57] + "..."),
    # Flags for days are refused, not ignored.
    (
        {"mon": {"time": "09:00", "enabled": False}},
        "mon",
        "{'time': '09:00', 'enabled': False}",
    ),
    ({"mon": "09:00", "enabled": False}, "days", "enabled"),
    # Days have one name.
    ({"monday": "09:00"}, "days", "monday"),
    ({"Mon": "09:00"}, "days", "Mon"),
    ({"mon": "09:00", "": None}, "days", ""),
    ({1: "09:00"}, "days", "1"),
    ([("mon", "09:00")], "days", "[('mon', '09:00')]"),
    ("mon", "days", "mon"),
    (None, "days", "None"),
]


@pytest.mark.parametrize(("days", "field", "text"), REFUSED)
def test_refused(days: Any, field: str, text: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        weekly(days)
    assert (caught.value.field, caught.value.text) == (field, text)


def test_the_remedy_is_named() -> None:
    with pytest.raises(InvalidTrigger, match="HH:MM from 00:00 to 23:59, two digits each"):
        weekly({"mon": "9:00"})
    with pytest.raises(InvalidTrigger, match="mon, tue, wed, thu, fri, sat, sun"):
        weekly({"monday": "09:00"})


@pytest.mark.parametrize(("gap", "fold"), [*product(GAPS, FOLDS)])
def test_clock_changes_in_berlin(gap: Gap, fold: Fold) -> None:
    """02:30 does not exist on Sunday 29 March and exists twice on Sunday 25 October 2026."""
    trigger = weekly({"sun": "02:30", "mon": "02:30"}, tz="Europe/Berlin", gap=gap, fold=fold)
    lost = {"next_valid": ["03-29 01:00"], "shift": ["03-29 01:30"], "skip": []}[gap]
    doubled = {
        "first": ["10-25 00:30"],
        "second": ["10-25 01:30"],
        "both": ["10-25 00:30", "10-25 01:30"],
    }[fold]
    spring, autumn = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)
    assert fires(trigger, spring, len(lost) + 1) == [*lost, "03-30 00:30"]
    assert fires(trigger, autumn, len(doubled) + 1) == [*doubled, "10-26 01:30"]


def test_a_full_day_is_still_a_table_of_fixed_times() -> None:
    """A list of all hours differs from `*` in cron: the repeated hour fires once."""
    trigger = weekly({"sun": [f"{hour:02}:00" for hour in range(24)]}, tz="Europe/Berlin")
    autumn = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)
    expected = ["10-25 00:00", "10-25 02:00"]  # 02:00 summer time, then 03:00 winter time
    assert fires(trigger, autumn, 2) == expected


def test_the_week_is_that_of_the_zone() -> None:
    """Monday 00:30 in Tokyo is still Sunday in UTC."""
    trigger = weekly({"mon": "00:30"}, tz="Asia/Tokyo")
    assert fires(trigger, BASE, 2) == ["03-08 15:30", "03-15 15:30"]


def test_start_and_end_are_inclusive() -> None:
    start, end = datetime(2026, 3, 16, 9, tzinfo=UTC), datetime(2026, 3, 23, 9, tzinfo=UTC)
    trigger = weekly({"mon": "09:00"}, start_at=start, end_at=end)
    assert fires(trigger, BASE, 9) == ["03-16 09:00", "03-23 09:00"]


def test_equal_by_value_and_hashable() -> None:
    given_twice = {weekly({"mon": "09:00", "tue": None}), weekly({"mon": ["09:00"]})}
    assert len(given_twice) == 1
    assert weekly({"mon": "09:00"}) != weekly({"mon": "09:00"}, tz="Asia/Tokyo")
    assert weekly({"mon": "09:00"}) != weekly({"tue": "09:00"})


def test_later_changes_of_arguments_have_no_effect() -> None:
    times = ["09:00"]
    days = {"mon": times}
    trigger = weekly(days)
    times.append("10:00")
    days["tue"] = ["11:00"]
    assert trigger == weekly({"mon": "09:00"})


CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
TABLES = st.dictionaries(
    st.sampled_from(DAYS),
    st.none() | st.lists(CLOCKS, min_size=1, max_size=4, unique=True),
    min_size=1,
).filter(lambda days: any(days.values()))
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]


@settings(max_examples=100, deadline=None)
@given(
    days=TABLES,
    tz=st.sampled_from(ZONES),
    after=st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 1)),  # noqa: DTZ001
)
def test_a_table_with_a_time_has_a_next_one_within_eight_days(
    days: dict[str, list[str] | None], tz: str, after: datetime
) -> None:
    asked = after.replace(tzinfo=UTC)
    found = weekly(days, tz=tz).next_after(asked)
    assert found is not None
    assert asked < found <= asked + timedelta(days=7 if tz == "UTC" else 8)
