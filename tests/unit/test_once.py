"""Once: one time, then finished."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly import InvalidInstant, InvalidTrigger, once

EVE = datetime(2026, 12, 24, 17, tzinfo=UTC)
MS = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (EVE - timedelta(days=365), EVE),
        (EVE - MS, EVE),
        (EVE, None),
        (EVE + MS, None),
        (EVE + timedelta(days=364, hours=23), None),  # the year after, it does not come again
    ],
)
def test_one_time(asked: datetime, expected: datetime | None) -> None:
    assert once(EVE).next_after(asked) == expected


def test_it_starts_and_ends_with_its_time() -> None:
    trigger = once(EVE)
    assert trigger.at == trigger.start_at == trigger.end_at == EVE
    assert trigger.is_bound
    assert trigger.bind("user:ada/gift", created_at=EVE) is trigger


def test_a_zone_is_only_a_way_to_write_the_instant() -> None:
    berlin = datetime(2026, 12, 24, 18, tzinfo=ZoneInfo("Europe/Berlin"))
    assert once(berlin) == once(EVE)
    assert once(berlin).tz == "UTC"
    assert once(berlin).next_after_ms(0) == 1_798_131_600_000


def test_between() -> None:
    assert list(once(EVE).between(EVE - MS, EVE)) == [EVE]
    assert list(once(EVE).between(EVE, EVE + MS)) == []


def test_a_spread_moves_the_run_and_not_the_time() -> None:
    trigger = once(EVE, spread=60).bind("user:ada/digest", created_at=EVE)
    assert trigger.next_after(EVE - MS) == EVE
    assert trigger.run_at(EVE) == EVE + timedelta(milliseconds=16_946)


@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 12, 24, 18),  # noqa: DTZ001
        datetime(1970, 1, 21, 11, tzinfo=UTC),  # 2026 in seconds, read as milliseconds
        datetime(1999, 12, 31, 23, 59, tzinfo=UTC),
        datetime(2200, 1, 1, tzinfo=UTC),
        1_798_131_600,
        "2026-12-24T18:00:00+01:00",
        None,
    ],
)
def test_refused(at: Any) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        once(at)
    assert caught.value.field == "at"


def test_refused_questions() -> None:
    for asked in (datetime(1969, 12, 31, tzinfo=UTC), datetime(2026, 1, 1)):  # noqa: DTZ001
        with pytest.raises(InvalidInstant):
            once(EVE).next_after(asked)


def test_equal_by_value_and_hashable() -> None:
    assert len({once(EVE), once(EVE + timedelta(microseconds=999))}) == 1
    assert once(EVE) != once(EVE + MS)
