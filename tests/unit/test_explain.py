"""Tests of explanations: the rule, the next times in local time and UTC, and clock changes."""

from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest

from duly import InvalidInput, InvalidInstant, InvalidTrigger, Trigger, cron, every, once, weekly
from duly.triggers.zone import Fold, Gap

BERLIN = "Europe/Berlin"
SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
GAPS: tuple[Gap, ...] = ("next_valid", "shift", "skip")
FOLDS: tuple[Fold, ...] = ("first", "second", "both")


def remarks(trigger: Trigger, after: datetime, n: int = 3) -> list[str | None]:
    return [time.remark for time in trigger.explain(n, after).times]


def test_text_form() -> None:
    text = str(cron("30 2 * * *", tz=BERLIN).explain(2, after=SPRING))
    assert text.splitlines() == [
        "Every day at 02:30, Europe/Berlin",
        (
            "  Sun 2026-03-29 03:00:00 +0200  2026-03-29 01:00:00Z"
            "  (02:30 does not exist that day, moved to here)"
        ),
        "  Mon 2026-03-30 02:30:00 +0200  2026-03-30 00:30:00Z",
    ]


def test_structured_form() -> None:
    explained = cron("0 9 * * MON", tz="Asia/Tokyo").explain(1, after=SPRING)
    (time,) = explained.times
    assert (explained.words, explained.tz) == ("At 09:00 on Monday", "Asia/Tokyo")
    assert time.at == datetime(2026, 3, 30, 0, tzinfo=UTC)
    assert time.local == datetime(2026, 3, 30, 9, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert (time.at.tzinfo, time.local.hour, time.remark) == (UTC, 9, None)


@pytest.mark.parametrize(("gap", "fold"), [*product(GAPS, FOLDS)])
def test_remarks_on_a_gap(gap: Gap, fold: Fold) -> None:
    moved = "02:30 does not exist that day, moved to here"
    first = {
        "next_valid": moved,
        "shift": moved,
        "skip": "2026-03-29 02:30 does not exist, skipped",
    }
    found = remarks(cron("30 2 * * *", tz=BERLIN, gap=gap, fold=fold), SPRING)
    assert found == [first[gap], None, None]


@pytest.mark.parametrize(("gap", "fold"), [*product(GAPS, FOLDS)])
def test_remarks_on_a_fold(gap: Gap, fold: Fold) -> None:
    first, second = (f"02:30 comes twice that day, this is the {which}" for which in FOLDS[:2])
    expected: dict[Fold, list[str | None]] = {
        "first": [first, None, None],
        "second": [second, None, None],
        "both": [first, second, None],
    }
    found = remarks(cron("30 2 * * *", tz=BERLIN, gap=gap, fold=fold), AUTUMN)
    assert found == expected[fold]


def test_weekly_tables_have_remarks_too() -> None:
    trigger = weekly({"sun": "02:30"}, tz=BERLIN)
    assert remarks(trigger, SPRING, 1) == ["02:30 does not exist that day, moved to here"]


def test_an_open_hour_misses_nothing() -> None:
    assert remarks(cron("30 * * * *", tz=BERLIN), SPRING + timedelta(hours=12)) == [None] * 3
    found = remarks(cron("30 * * * *", tz=BERLIN), AUTUMN + timedelta(hours=12), 3)
    first, second = (f"02:30 comes twice that day, this is the {which}" for which in FOLDS[:2])
    assert found == [first, second, None]


def test_a_day_that_does_not_exist() -> None:
    after = datetime(2011, 12, 29, 20, tzinfo=UTC)
    trigger = cron("0 9 * * *", tz="Pacific/Apia", gap="skip")
    assert remarks(trigger, after, 2) == ["2011-12-30 09:00 does not exist, skipped", None]
    shifted = cron("0 9 * * *", tz="Pacific/Apia", gap="shift")
    assert remarks(shifted, after, 2) == ["09:00 does not exist that day, moved to here", None]


def test_many_lost_times_are_not_all_listed() -> None:
    (remark,) = remarks(cron("* 2 * * *", tz=BERLIN), SPRING, 1)
    assert remark is not None
    assert remark.count("does not exist") == 3


def test_a_time_lost_before_the_start_was_never_skipped() -> None:
    start = datetime(2026, 6, 1, tzinfo=UTC)
    trigger = cron("30 2 * * *", tz=BERLIN, gap="skip", start_at=start)
    assert remarks(trigger, SPRING, 1) == [None]


def test_rules_on_real_time_name_no_zone() -> None:
    explained = every(minutes=15, start_at=SPRING).explain(1, after=SPRING)
    assert explained.tz is None
    assert str(explained).splitlines() == [
        "Every 15 minutes",
        "  Sat 2026-03-28 12:15:00 +0000  2026-03-28 12:15:00Z",
    ]


def test_fewer_times_than_asked_for() -> None:
    trigger = once(SPRING)
    assert len(trigger.explain(5, after=SPRING - timedelta(days=1)).times) == 1
    assert str(trigger.explain(5, after=SPRING)).splitlines() == [
        "Once, on Saturday 28 March 2026 at 12:00 UTC",
        "  no next time",
    ]


def test_no_day_on() -> None:
    explained = weekly({}, tz=BERLIN).explain(5, after=SPRING)
    assert str(explained) == "Never (no day has a time), Europe/Berlin\n  no next time"


def test_default_is_five_times_after_now() -> None:
    before = datetime.now(UTC)
    times = cron("* * * * *").explain().times
    assert len(times) == 5
    assert before < times[0].at <= datetime.now(UTC) + timedelta(minutes=1)


@pytest.mark.parametrize("n", [-1, 10_001])
def test_the_number_of_times_is_bounded(n: int) -> None:
    with pytest.raises(InvalidInput, match="0 to 10000"):
        cron("@daily").explain(n, after=SPRING)


def test_the_bounds_are_allowed() -> None:
    assert cron("@daily").explain(0, after=SPRING).times == ()
    assert len(cron("* * * * *").explain(10_000, after=SPRING).times) == 10_000


def test_arguments_that_cannot_be_explained() -> None:
    with pytest.raises(InvalidInstant):
        cron("@daily").explain(1, after=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidTrigger, match="bind"):
        cron("H * * * *").explain(1, after=SPRING)


def test_remarks_and_times_keep_seconds_and_milliseconds() -> None:
    rule = cron("15 30 2 * * *", tz="Europe/Berlin", seconds=True)
    found = rule.explain(1, datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert found.times[0].remark == "02:30:15 does not exist that day, moved to here"
    fine = every(seconds=5, start_at=datetime(2026, 3, 28, 12, 0, 0, 250_000, tzinfo=UTC))
    (time,) = fine.explain(1, datetime(2026, 3, 28, 12, 0, 1, tzinfo=UTC)).times
    assert str(time) == "Sat 2026-03-28 12:00:05.250 +0000  2026-03-28 12:00:05.250Z"
