"""Tests of cron expressions, with fires worked out by hand from a calendar."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly import Cron, InvalidInstant, InvalidTrigger, Trigger, cron

# A Saturday; 1 March 2026 is a Sunday.
BASE = "2026-03-07 12:00"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(trigger: Trigger, after: str, n: int) -> list[str]:
    """Return the next n times in UTC, to the minute unless they have seconds."""
    found, last = [], at(after)
    for _ in range(n):
        following = trigger.next_after(last)
        if following is None:
            found.append("none")
            break
        last = following
        found.append(f"{last:%Y-%m-%d %H:%M:%S}".removesuffix(":00"))
    return found


def days(trigger: Trigger, after: str, n: int) -> list[str]:
    """Return the dates of the next n times of a rule that fires at midnight."""
    return [each.removesuffix(" 00:00") for each in fires(trigger, after, n)]


# The first times after BASE, from the table of vectors in the specification.
VECTORS = {
    "0 0 29 2 *": ["2028-02-29 00:00", "2032-02-29 00:00"],
    "0 9 * * 7": ["2026-03-08 09:00", "2026-03-15 09:00"],
    "0 9 * * 0": ["2026-03-08 09:00", "2026-03-15 09:00"],
    "0 9 * * MON": ["2026-03-09 09:00", "2026-03-16 09:00"],
    "0 9 * * mon": ["2026-03-09 09:00", "2026-03-16 09:00"],
    "0 9 * * MON-FRI": ["2026-03-09 09:00", "2026-03-10 09:00"],
    "0 9 1 JAN *": ["2027-01-01 09:00", "2028-01-01 09:00"],
    "0 9 1 Feb-apr *": ["2026-04-01 09:00", "2027-02-01 09:00"],
    "0 9 1 DEC *": ["2026-12-01 09:00", "2027-12-01 09:00"],
    "@yearly": ["2027-01-01 00:00", "2028-01-01 00:00"],
    "@annually": ["2027-01-01 00:00", "2028-01-01 00:00"],
    "@monthly": ["2026-04-01 00:00", "2026-05-01 00:00"],
    "@weekly": ["2026-03-08 00:00", "2026-03-15 00:00"],
    "@daily": ["2026-03-08 00:00", "2026-03-09 00:00"],
    "@Midnight": ["2026-03-08 00:00", "2026-03-09 00:00"],
    "@hourly": ["2026-03-07 13:00", "2026-03-07 14:00"],
    " @daily\t": ["2026-03-08 00:00", "2026-03-09 00:00"],
    "* * * * *": ["2026-03-07 12:01", "2026-03-07 12:02"],
    "\t0  9 * *   1 ": ["2026-03-09 09:00", "2026-03-16 09:00"],
}


@pytest.mark.parametrize("expression", VECTORS)
def test_vectors(expression: str) -> None:
    assert fires(cron(expression), BASE, 2) == VECTORS[expression]


FORMS = {
    "0,30 9,17 * * *": ["03-07 17:00", "03-07 17:30", "03-08 09:00", "03-08 09:30"],
    "30,0 17,9 * * *": ["03-07 17:00", "03-07 17:30", "03-08 09:00", "03-08 09:30"],
    "*/25 * * * *": ["03-07 12:25", "03-07 12:50", "03-07 13:00", "03-07 13:25"],
    "5/20 * * * *": ["03-07 12:05", "03-07 12:25", "03-07 12:45", "03-07 13:05"],
    "10-40/15 * * * *": ["03-07 12:10", "03-07 12:25", "03-07 12:40", "03-07 13:10"],
    "58-59,1 * * * *": ["03-07 12:01", "03-07 12:58", "03-07 12:59", "03-07 13:01"],
    "59 23 * * *": ["03-07 23:59", "03-08 23:59", "03-09 23:59", "03-10 23:59"],
    "0 12 * * *": ["03-08 12:00", "03-09 12:00", "03-10 12:00", "03-11 12:00"],
    "0 20/2 * * *": ["03-07 20:00", "03-07 22:00", "03-08 20:00", "03-08 22:00"],
    "0 9 * * FRI-SUN": ["03-08 09:00", "03-13 09:00", "03-14 09:00", "03-15 09:00"],
    "0 9 * * 5-7": ["03-08 09:00", "03-13 09:00", "03-14 09:00", "03-15 09:00"],
    "0 9 * * 0-7": ["03-08 09:00", "03-09 09:00", "03-10 09:00", "03-11 09:00"],
    "0 9 * * SUN,TUE": ["03-08 09:00", "03-10 09:00", "03-15 09:00", "03-17 09:00"],
    "0 9 * * 1-5/2": ["03-09 09:00", "03-11 09:00", "03-13 09:00", "03-16 09:00"],
    "0 9 * * */3": ["03-08 09:00", "03-11 09:00", "03-14 09:00", "03-15 09:00"],
    "0 9 * * 4/2": ["03-12 09:00", "03-14 09:00", "03-19 09:00", "03-21 09:00"],
    "0 9 * * 5/2": ["03-13 09:00", "03-20 09:00", "03-27 09:00", "04-03 09:00"],
    "0 9 1 */5 *": ["06-01 09:00", "11-01 09:00", "01-01 09:00", "06-01 09:00"],
}


@pytest.mark.parametrize("expression", FORMS)
def test_lists_ranges_and_steps(expression: str) -> None:
    assert [each[5:] for each in fires(cron(expression), BASE, 4)] == FORMS[expression]


# The rules below fire at midnight, so dates are enough.
DAYS = {
    "L * *": ["03-31", "04-30", "05-31", "06-30"],
    "LW * *": ["03-31", "04-30", "05-29", "06-30"],  # 31 May is a Sunday
    "15W * *": ["03-16", "04-15", "05-15", "06-15"],  # 15 March is a Sunday
    "31W * *": ["03-31", "05-29", "07-31", "08-31"],  # no 31st: no run; 31 May is a Sunday
    "1W * *": ["04-01", "05-01", "06-01", "07-01"],
    "1W 8-11 *": ["08-03", "09-01", "10-01", "11-02"],  # 1 August is a Saturday, 1 Nov a Sunday
    "31W 10 *": ["10-30", "10-29", "10-31", "10-31"],  # Saturday 2026, Sunday 2027, then weekdays
    "31W 4,5 *": ["05-29", "05-31", "05-31", "05-31"],  # 1 May 2027, "31 April", is a Saturday
    "* * 5L": ["03-27", "04-24", "05-29", "06-26"],
    "* * FRIL": ["03-27", "04-24", "05-29", "06-26"],
    "* * 7L": ["03-29", "04-26", "05-31", "06-28"],
    "* * 1#2": ["03-09", "04-13", "05-11", "06-08"],
    "* * mon#2": ["03-09", "04-13", "05-11", "06-08"],
    "* * 0#1": ["04-05", "05-03", "06-07", "07-05"],
    "* * 1#5": ["03-30", "06-29", "08-31", "11-30"],  # months with a fifth Monday
    "* * 1#1,5L": ["03-27", "04-06", "04-24", "05-04"],
    "1,L * *": ["03-31", "04-01", "04-30", "05-01"],
    "15W,L 5 *": ["05-15", "05-31", "05-14", "05-31"],  # 15 May 2027 is a Saturday
}


@pytest.mark.parametrize("rule", DAYS)
def test_days_that_depend_on_the_month(rule: str) -> None:
    assert [day[5:] for day in days(cron(f"0 0 {rule}"), BASE, 4)] == DAYS[rule]


# Vixie's rule: if both day fields are restricted, either may match. If one starts with * or ?,
# both must match.
EITHER_OR_BOTH = {
    "13 * 5": ["03-13", "03-20", "03-27", "04-03", "04-10", "04-13"],
    "13 * FRI": ["03-13", "03-20", "03-27", "04-03", "04-10", "04-13"],
    "1-31 * 5": ["03-08", "03-09", "03-10", "03-11", "03-12", "03-13"],
    "10 * 0-6": ["03-08", "03-09", "03-10", "03-11", "03-12", "03-13"],
    "L * 1#2": ["03-09", "03-31", "04-13", "04-30", "05-11", "05-31"],
    "? * 5": ["03-13", "03-20", "03-27", "04-03", "04-10", "04-17"],
    "13 * ?": ["03-13", "04-13", "05-13", "06-13", "07-13", "08-13"],
    "*/2 * 1": ["03-09", "03-23", "04-13", "04-27", "05-11", "05-25"],
    "*/10 * *": ["03-11", "03-21", "03-31", "04-01", "04-11", "04-21"],
    "13 * */7": ["09-13", "12-13", "06-13", "02-13", "08-13", "05-13"],
    "*/7 * */7": ["03-08", "03-15", "03-22", "03-29", "11-01", "11-08"],
}


@pytest.mark.parametrize("rule", EITHER_OR_BOTH)
def test_either_day_field_or_both(rule: str) -> None:
    assert [day[5:] for day in days(cron(f"0 0 {rule}"), BASE, 6)] == EITHER_OR_BOTH[rule]


SECONDS = {
    "*/10 * * * * *": ["2026-03-07 12:00:10", "2026-03-07 12:00:20", "2026-03-07 12:00:30"],
    "15,45 * * * * *": ["2026-03-07 12:00:15", "2026-03-07 12:00:45", "2026-03-07 12:01:15"],
    "0 * * * * *": ["2026-03-07 12:01", "2026-03-07 12:02", "2026-03-07 12:03"],
    "59 59 23 * * *": ["2026-03-07 23:59:59", "2026-03-08 23:59:59", "2026-03-09 23:59:59"],
    "30 0 9 * * MON": ["2026-03-09 09:00:30", "2026-03-16 09:00:30", "2026-03-23 09:00:30"],
    "5,6 0 0 L * *": ["2026-03-31 00:00:05", "2026-03-31 00:00:06", "2026-04-30 00:00:05"],
    "@daily": ["2026-03-08 00:00", "2026-03-09 00:00", "2026-03-10 00:00"],
}


@pytest.mark.parametrize("expression", SECONDS)
def test_six_fields_begin_with_the_second(expression: str) -> None:
    assert fires(cron(expression, seconds=True), BASE, 3) == SECONDS[expression]


ZONES_THROUGH_THE_YEAR = {
    # 09:00 on 1 January, 20 March, 1 July and 1 November 2026. New York is an hour ahead of
    # winter time in March already, Berlin is not; Sydney has summer time in January.
    "Europe/Berlin": ["08:00", "08:00", "07:00", "08:00"],
    "America/New_York": ["14:00", "13:00", "13:00", "14:00"],
    "Australia/Sydney": ["22:00", "22:00", "23:00", "22:00"],
    "Asia/Kolkata": ["03:30", "03:30", "03:30", "03:30"],
    "UTC": ["09:00", "09:00", "09:00", "09:00"],
}


@pytest.mark.parametrize("tz", ZONES_THROUGH_THE_YEAR)
def test_nine_o_clock_is_nine_o_clock_all_year(tz: str) -> None:
    trigger = cron("0 9 1 1 *", tz=tz), cron("0 9 20 3 *", tz=tz), cron("0 9 1 7,11 *", tz=tz)
    found = [*fires(trigger[0], "2025-12-30 00:00", 1), *fires(trigger[1], "2026-03-01 00:00", 1)]
    found += fires(trigger[2], "2026-06-01 00:00", 2)
    assert [each[11:] for each in found] == ZONES_THROUGH_THE_YEAR[tz]


@pytest.fixture
def host_in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("host_in_new_york")
def test_the_zone_of_the_host_is_ignored() -> None:
    assert datetime(2026, 7, 1, 9).astimezone().utcoffset() == timedelta(hours=-4)
    trigger = cron("11 9 * * *")  # used in no other test, so nothing is cached
    assert fires(trigger, "2026-07-01 00:00", 1) == ["2026-07-01 09:11"]
    assert trigger.to_json()["tz"] == "UTC"


def test_the_answer_is_strictly_after() -> None:
    trigger, nine = cron("0 9 * * *"), at("2026-03-08 09:00")
    assert trigger.next_after(nine - timedelta(microseconds=1)) == nine
    assert trigger.next_after(nine) == nine + timedelta(days=1)
    assert trigger.next_after(nine + timedelta(microseconds=1)) == nine + timedelta(days=1)


def test_the_answer_is_in_utc_for_any_zone_of_the_question() -> None:
    asked = datetime(2026, 3, 8, 17, 30, tzinfo=ZoneInfo("Asia/Tokyo"))
    found = cron("0 9 * * *").next_after(asked)
    assert found is not None
    assert (found.isoformat(), found.tzinfo) == ("2026-03-08T09:00:00+00:00", UTC)


def test_the_second_02_30_of_a_fold_is_not_the_first() -> None:
    second = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    assert cron("*/30 * * * *").next_after(second) == at("2026-10-25 02:00")
    assert cron("*/30 * * * *").next_after(second.replace(fold=0)) == at("2026-10-25 01:00")


@pytest.mark.parametrize(
    ("expression", "tz", "asked_ms", "expected_ms"),
    [
        # 2026-01-01T00:00Z is 1 767 225 600 s: 20 454 days. Nine hours are 32 400 s.
        ("0 9 * * *", "UTC", 1_767_225_600_000, 1_767_258_000_000),
        ("0 9 * * *", "UTC", 1_767_257_999_999, 1_767_258_000_000),
        ("0 9 * * *", "UTC", 1_767_258_000_000, 1_767_344_400_000),
        ("0 9 * * *", "Asia/Tokyo", 1_767_225_600_000, 1_767_312_000_000),
        ("* * * * *", "UTC", 0, 60_000),
    ],
)
def test_milliseconds(expression: str, tz: str, asked_ms: int, expected_ms: int) -> None:
    found = cron(expression, tz=tz).next_after_ms(asked_ms)
    assert (found, type(found)) == (expected_ms, int)


def test_leap_days_across_2100() -> None:
    trigger = cron("0 0 29 2 *")
    assert days(trigger, "2092-02-29", 3) == ["2096-02-29", "2104-02-29", "2108-02-29"]


def test_the_longest_wait_is_forty_years() -> None:
    """29 February is a Sunday every 28 years, but 2100 is not a leap year."""
    trigger = cron("0 0 29 2 */7")
    expected = ["2032-02-29", "2060-02-29", "2088-02-29", "2128-02-29"]
    assert days(trigger, BASE, 4) == expected
    assert trigger.next_after(at("2088-03-01 00:00")) == at("2128-02-29 00:00")


@pytest.mark.parametrize(
    ("expression", "tz", "after", "expected"),
    [
        ("0 0 1 1 *", "UTC", "2199-06-01 00:00", "none"),
        ("0 0 31 12 *", "UTC", "2199-06-01 00:00", "2199-12-31 00:00"),
        ("* * * * *", "UTC", "2199-12-31 23:58", "2199-12-31 23:59"),
        ("* * * * *", "UTC", "2199-12-31 23:59", "none"),
        ("0 0 1 1 *", "America/Los_Angeles", "2199-06-01 00:00", "none"),
        ("0 0 1 1 *", "Asia/Tokyo", "2199-06-01 00:00", "2199-12-31 15:00"),
        ("0 0 29 2 *", "UTC", "2196-03-01 00:00", "none"),
    ],
)
def test_nothing_fires_from_2200_on(expression: str, tz: str, after: str, expected: str) -> None:
    assert fires(cron(expression, tz=tz), after, 1) == [expected]
    bounded = cron(expression, tz=tz, start_at=at("2000-01-01 00:00"))
    assert fires(bounded, after, 1) == [expected]


@pytest.mark.parametrize("spread", [None, 60])
@pytest.mark.parametrize(
    "asked",
    [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(2200, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")),
        datetime(2026, 3, 7, 12),  # noqa: DTZ001
        datetime(2026, 3, 7).date(),  # noqa: DTZ001
        1_767_225_600,
        None,
    ],
)
def test_questions_that_are_refused(asked: datetime, spread: int | None) -> None:
    with pytest.raises(InvalidInstant):
        cron("0 9 * * *", spread=spread).next_after(asked)


@pytest.mark.parametrize("ms", [-1, 7_258_118_400_000])
def test_milliseconds_that_are_refused(ms: int) -> None:
    with pytest.raises(InvalidInstant, match="1970 to 2199"):
        cron("0 9 * * *").next_after_ms(ms)


def test_the_first_and_last_questions() -> None:
    assert cron("* * * * *").next_after(at("1970-01-01 00:00")) == at("1970-01-01 00:01")
    assert cron("* * * * *").next_after(at("2199-12-31 23:59:59.999999")) is None


MS = timedelta(milliseconds=1)
FIRST, LAST = at("2026-04-01 09:00"), at("2026-04-03 09:00")


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (FIRST, LAST, ["04-01", "04-02", "04-03", "none"]),
        (FIRST + MS, LAST, ["04-02", "04-03", "none"]),
        (FIRST, LAST - MS, ["04-01", "04-02", "none"]),
        (FIRST, FIRST, ["04-01", "none"]),
        (FIRST + MS, FIRST + MS, ["none"]),
        (None, at("2026-03-09 00:00"), ["03-08", "none"]),
        (LAST, None, ["04-03", "04-04", "04-05", "04-06"]),
    ],
)
def test_start_and_end_are_inclusive(
    start: datetime | None, end: datetime | None, expected: list[str]
) -> None:
    trigger = cron("0 9 * * *", start_at=start, end_at=end)
    found = fires(trigger, BASE, 4)
    assert [each.removeprefix("2026-").removesuffix(" 09:00") for each in found] == expected
    assert (trigger.start_at, trigger.end_at) == (start, end)


def test_a_start_in_the_past_changes_nothing() -> None:
    trigger = cron("0 9 * * *", start_at=at("2000-01-01 00:00"))
    assert fires(trigger, BASE, 1) == ["2026-03-08 09:00"]


def test_between_excludes_its_start_and_includes_its_end() -> None:
    found = cron("0 9 * * *").between(FIRST, LAST)
    assert list(found) == [FIRST + timedelta(days=1), LAST]


def test_between_is_lazy() -> None:
    found = cron("* * * * * *", seconds=True).between(FIRST, at("2199-12-31 00:00"))
    assert next(iter(found)) == FIRST + timedelta(seconds=1)


# Worked out with sha256. A release that changes one of these moves existing schedules.
ADA, BOB = "user:ada/digest", "user:bob/digest"
HASHED = [
    ("H * * * *", ADA, "2026-03-07 12:43"),
    ("H * * * *", BOB, "2026-03-07 12:19"),
    ("h * * * *", BOB, "2026-03-07 12:19"),
    ("H * * * *", "schlüssel", "2026-03-07 12:17"),
    ("H H * * *", ADA, "2026-03-08 02:43"),
    ("H H * * *", BOB, "2026-03-07 16:19"),
    ("0 0 H * *", ADA, "2026-03-08 00:00"),
    ("0 0 H * *", BOB, "2026-04-04 00:00"),
    ("0 0 1 H *", ADA, "2026-05-01 00:00"),
    ("0 0 1 H *", BOB, "2026-08-01 00:00"),
    ("0 0 * * H", ADA, "2026-03-09 00:00"),
    ("0 0 * * H", BOB, "2026-03-10 00:00"),
    ("H(0-29) * * * *", ADA, "2026-03-07 12:13"),
    ("H(0-29) * * * *", BOB, "2026-03-07 12:19"),
    ("H(30-59) 13 * * *", ADA, "2026-03-07 13:43"),
    ("0 H(9-16) * * MON-FRI", ADA, "2026-03-09 11:00"),
    ("0 H(9-16) * * MON-FRI", BOB, "2026-03-09 09:00"),
]


@pytest.mark.parametrize(("expression", "key", "expected"), HASHED)
def test_h_never_changes(expression: str, key: str, expected: str) -> None:
    trigger = cron(expression).bind(key, created_at=at(BASE))
    assert fires(trigger, BASE, 1) == [expected]


@pytest.mark.parametrize(
    ("expression", "key", "minutes"),
    [
        ("H/15 * * * *", ADA, [13, 28, 43, 58]),
        ("H/15 * * * *", BOB, [4, 19, 34, 49]),
        ("H(0-29)/10 * * * *", ADA, [3, 13, 23]),
        ("H(0-29)/10 * * * *", BOB, [9, 19, 29]),
        ("5,H * * * *", BOB, [5, 19]),
    ],
)
def test_h_with_a_step_or_in_a_list(expression: str, key: str, minutes: list[int]) -> None:
    trigger = cron(expression).bind(key, created_at=at(BASE))
    found = [
        each.minute for each in trigger.between(at("2026-03-07 12:59"), at("2026-03-07 14:59"))
    ]
    assert found == minutes * 2


def test_h_of_a_second() -> None:
    trigger = cron("H * * * * *", seconds=True).bind(ADA, created_at=at(BASE))
    assert fires(trigger, BASE, 2) == ["2026-03-07 12:00:22", "2026-03-07 12:01:22"]


def test_h_covers_exactly_its_range() -> None:
    keys = [f"user:{number}/x" for number in range(300)]
    bound = [cron("H(10-14) 0 H * *").bind(key, created_at=at(BASE)) for key in keys]
    found = [each for trigger in bound if (each := trigger.next_after(at(BASE)))]
    assert {each.minute for each in found} == {10, 11, 12, 13, 14}
    assert {each.day for each in found} == set(range(1, 29))  # every month has them


def test_h_must_be_bound_first() -> None:
    trigger = cron("H * * * *")
    assert not trigger.is_bound
    with pytest.raises(InvalidTrigger, match=r"bind\(key, created_at\)") as caught:
        trigger.next_after(at(BASE))
    assert (caught.value.field, caught.value.text) == ("expression", "H")


def test_binding_is_done_once() -> None:
    bound = cron("H * * * *").bind(ADA, created_at=at(BASE))
    assert bound.is_bound
    assert bound.bind(BOB, created_at=at(BASE)) is bound


def test_binding_returns_triggers_that_need_none_unchanged() -> None:
    trigger = cron("0 9 * * *")
    assert trigger.is_bound
    assert trigger.bind(ADA, created_at=at(BASE)) is trigger


def test_a_key_is_text() -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron("H * * * *").bind(7, created_at=at(BASE))  # type: ignore[arg-type]
    assert caught.value.field == "key"


def test_spread_moves_the_run_and_not_the_time() -> None:
    trigger = cron("0 9 * * *", spread=60)
    bound = trigger.bind(ADA, created_at=at(BASE))
    assert bound.offset_ms == 16_946  # worked out with sha256, as above
    assert fires(bound, BASE, 2) == fires(cron("0 9 * * *"), BASE, 2)
    base_ms, nine_ms = 1_772_884_800_000, 1_772_960_400_000  # 12:00, and 09:00 the day after
    assert bound.next_after_ms(base_ms) == nine_ms
    assert bound.run_at(at("2026-03-08 09:00")) == at("2026-03-08 09:00:16.946")


@pytest.mark.parametrize(
    ("key", "spread", "offset_ms"),
    [
        (ADA, 60, 16_946),
        (BOB, 60, 35_769),
        (BOB, 60.0, 35_769),
        (BOB, timedelta(hours=1), 2_855_769),
        (BOB, None, 0),
        (BOB, 0, 0),
    ],
)
def test_offsets(key: str, spread: timedelta | float | None, offset_ms: int) -> None:
    assert cron("@daily", spread=spread).bind(key, created_at=at(BASE)).offset_ms == offset_ms


def test_offsets_stay_below_the_spread() -> None:
    bound = [cron("@daily", spread=0.005).bind(str(key), at(BASE)) for key in range(100)]
    assert {each.offset_ms for each in bound} == {0, 1, 2, 3, 4}


def test_a_spread_must_be_bound_before_its_offset_is_asked() -> None:
    trigger = cron("0 9 * * *", spread=60)
    assert not trigger.is_bound
    assert trigger.next_after(at(BASE)) == at("2026-03-08 09:00")
    with pytest.raises(InvalidTrigger, match=r"bind\(key, created_at\)"):
        trigger.run_at(at("2026-03-08 09:00"))


def test_equal_by_value_and_hashable() -> None:
    same = {cron("0 9 * * *"), cron("0 9 * * *"), cron("0 9 * * *", tz="UTC", gap="next_valid")}
    other = {
        cron("0 9 * * 0-6"),
        cron("0 9 * * *", tz="Asia/Tokyo"),
        cron("0 9 * * *", gap="skip"),
        cron("0 9 * * *", fold="both"),
        cron("0 9 * * *", spread=1),
        cron("0 9 * * *", end_at=LAST),
        cron("0 0 9 * * *", seconds=True),
    }
    assert (len(same), len(other | same)) == (1, 8)


def test_triggers_cannot_be_changed() -> None:
    trigger: Cron = cron("0 9 * * *")
    with pytest.raises(AttributeError):
        trigger.expression = "@daily"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        trigger.memory = 1  # type: ignore[attr-defined]
