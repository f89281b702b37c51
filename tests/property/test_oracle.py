"""Tests of the engine against the brute-force oracle, and of the oracle against hand-made answers.

Random rules meet every zone with unusual clock changes, and for fixed years every half hour of
every change meets all nine pairs of policies.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly import InvalidTrigger, weekly
from tests.property import oracle, strategies
from tests.property.oracle import Clocks, cron_between, cron_next, wall_at
from tests.property.strategies import FEW, MANY, POLICIES, USUAL, Case, trigger_of

SEED = 7
TEXTS = 40_000


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# The oracle itself.

CALENDAR_BY_HAND = [
    ("0 0 13 * 5", "2026-03-07", "2026-03-28", "03-13 03-20 03-27"),
    ("0 0 */2 * 1", "2026-03-02", "2026-03-31", "03-09 03-23"),
    ("0 0 13 * *", "2026-03-01", "2026-05-01", "03-13 04-13"),
    ("0 0 ? * 7", "2026-03-07", "2026-03-20", "03-08 03-15"),
    ("0 0 * * 5-7", "2026-03-02", "2026-03-09", "03-06 03-07 03-08"),
    ("0 0 L 2-4 *", "2028-01-01", "2028-05-01", "02-29 03-31 04-30"),
    ("0 0 LW * *", "2026-01-01", "2026-06-01", "01-30 02-27 03-31 04-30 05-29"),
    ("0 0 15W * *", "2026-03-01", "2026-09-01", "03-16 04-15 05-15 06-15 07-15 08-14"),
    ("0 0 1W 8,11 *", "2026-01-01", "2027-01-01", "08-03 11-02"),
    ("0 0 * * 5L", "2026-03-01", "2026-06-01", "03-27 04-24 05-29"),
    ("0 0 * * 1#2", "2026-03-01", "2026-06-01", "03-09 04-13 05-11"),
    ("0 0 1-9/4 1 *", "2025-12-31", "2026-02-01", "01-01 01-05 01-09"),
    ("0 0 20/5 1 *", "2026-01-01", "2026-02-01", "01-20 01-25 01-30"),
]


@pytest.mark.parametrize(("expression", "start", "end", "dates"), CALENDAR_BY_HAND)
def test_calendar_by_hand(expression: str, start: str, end: str, dates: str) -> None:
    found = cron_between(expression, Clocks(), utc(start), utc(end))
    assert found == [
        utc(f"{fire:%Y}-{day}") for fire, day in zip(found, dates.split(), strict=True)
    ]


NEW_YORK, LORD_HOWE, APIA = "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"

CHANGES_BY_HAND = [
    ("30 2 * * *", Clocks(NEW_YORK), "2026-03-08", "07:00"),
    ("30 2 * * *", Clocks(NEW_YORK, gap="shift"), "2026-03-08", "07:30"),
    ("30 2 * * *", Clocks(NEW_YORK, gap="skip"), "2026-03-08", ""),
    ("0,30 2,3 * * *", Clocks(NEW_YORK), "2026-03-08", "07:00 07:30"),
    ("30 */4 * * *", Clocks(NEW_YORK), "2026-03-08", "01:30 05:30 08:30 12:30 16:30 20:30"),
    ("30 2-23/4 * * *", Clocks(NEW_YORK), "2026-03-08", "03:30 07:00 10:30 14:30 18:30 22:30"),
    ("30 */23 * * *", Clocks(NEW_YORK), "2026-03-08", "04:30 05:30"),
    ("30 1 * * *", Clocks(NEW_YORK), "2026-11-01", "05:30"),
    ("30 1 * * *", Clocks(NEW_YORK, fold="second"), "2026-11-01", "06:30"),
    ("30 1 * * *", Clocks(NEW_YORK, fold="both"), "2026-11-01", "05:30 06:30"),
    ("15 2 * * *", Clocks(LORD_HOWE), "2026-10-03", "15:30"),
    ("15 2 * * *", Clocks(LORD_HOWE, gap="shift"), "2026-10-03", "15:45"),
    ("45 1 * * *", Clocks(LORD_HOWE, fold="both"), "2026-04-04", "14:45 15:15"),
    ("0 3 * * *", Clocks("Pacific/Chatham"), "2026-09-26", "14:00"),
    ("0 2 * * *", Clocks("Antarctica/Troll"), "2026-03-29", "01:00"),
    ("30 0 * * *", Clocks("America/Santiago"), "2026-09-06", "04:00"),
    ("20 0 * * *", Clocks("Africa/Monrovia"), "1972-01-07", "00:44:30"),
    ("10 0 * * *", Clocks("Asia/Kathmandu"), "1985-12-31", "18:30"),
    ("0 9 * * *", Clocks(APIA), "2011-12-30", "10:00 19:00"),
    ("0 9 30 12 *", Clocks(APIA, gap="shift"), "2011-12-30", "19:00"),
    ("0 9 * * *", Clocks(APIA, gap="skip"), "2011-12-30", "19:00"),
]


@pytest.mark.parametrize(("expression", "clocks", "day", "times"), CHANGES_BY_HAND)
def test_clock_changes_by_hand(expression: str, clocks: Clocks, day: str, times: str) -> None:
    """All fires of one UTC day."""
    found = cron_between(expression, clocks, utc(day), utc(f"{day}T23:59"))
    assert found == [utc(f"{day}T{time}") for time in times.split()]


def test_leap_day_across_2100() -> None:
    assert cron_next("0 0 29 2 *", Clocks(), utc("2096-03-01")) == utc("2104-02-29")


@pytest.mark.parametrize(
    "expression",
    [
        "10-5 * * * *",
        "* * * * FRI-MON",
        "60 * * * *",
        "*/0 * * * *",
        "* * * *",
        "0 0 31 2 *",
        "0 0 */31 * 1#2",
        "? * * * *",
        "* * * JAN-XXX *",
        "@reboot",
        "0 0 0 * *",
    ],
)
def test_oracle_refuses(expression: str) -> None:
    assert not oracle.is_expression(expression)


@FEW
@given(case=strategies.cases(strategies.every_hour))
def test_oracle_agrees_with_the_definition_of_a_starred_hour(case: Case) -> None:
    """For a starred hour, walking wall time and searching instants give the same fires."""
    by_instants = oracle.cron_next_by_instants(case.expression, case.clocks.tz, case.instant)
    assert cron_next(case.expression, case.clocks, case.instant) == by_instants


# The engine.


def check(case: Case, *, seconds: bool = False) -> None:
    expected = cron_next(case.expression, case.clocks, case.instant)
    try:
        trigger = trigger_of(case.expression, case.clocks, seconds=seconds)
    except InvalidTrigger:
        assert not oracle.can_match(case.expression), "refused, but it can match"
        return
    assert expected or oracle.can_match(case.expression), "accepted, but it never matches"
    found = trigger.next_after(case.instant)
    if expected and expected - case.instant > oracle.HORIZON - timedelta(days=2):
        assert found in (expected, None)
    else:
        assert found == expected


NUMBERS = ["0", "1", "5", "6", "7", "8", "12", "13", "23", "24", "29", "31", "32", "59", "60", "61"]
ODD_NUMBERS = ["00", "07", "007", "-1", "+1", "1.0", "*", "?"]
WORDS = ["MON", "SUN", "SAT", "FRI", "JAN", "DEC", "MONDAY", "L", "LW", "W", "SATL", "L5", "SUN#1"]
RULES = ["15W", "32W", "0W", "5L", "7L", "8L", "1#2", "1#0", "1#6"]
ATOMS = NUMBERS + ODD_NUMBERS + WORDS + RULES


def field_like(random: Random) -> str:
    text = random.choice(ATOMS)
    for _ in range(random.choice([0, 0, 0, 1, 1, 2, 3])):
        text += random.choice(["-", "/", ",", "#", ""]) + random.choice(ATOMS)
    return text


def test_grammar_agrees() -> None:
    """The engine accepts exactly what the oracle's grammar accepts."""
    random, different = Random(SEED), []
    for _ in range(TEXTS):
        texts = ["0", "0", "*", "*", "*"]
        for place in random.sample(range(5), random.choice([1, 1, 1, 2])):
            texts[place] = field_like(random)
        expression = " ".join(texts)
        if is_accepted(expression) != oracle.is_expression(expression):
            different.append(expression)
    assert different == []


def is_accepted(expression: str) -> bool:
    try:
        trigger_of(expression, Clocks())
    except InvalidTrigger:
        return False
    return True


@MANY
@given(case=strategies.cases())
def test_cron_agrees(case: Case) -> None:
    check(case)


@USUAL
@given(case=strategies.cases(strategies.six_fields))
def test_cron_with_seconds_agrees(case: Case) -> None:
    check(case, seconds=True)


@MANY
@given(days=strategies.weekly_days(), clocks=strategies.clocks(), data=st.data())
def test_weekly_agrees(
    days: dict[str, str | list[str] | None], clocks: Clocks, data: st.DataObject
) -> None:
    instant = data.draw(strategies.instants_near_changes(clocks.tz))
    trigger = weekly(days, tz=clocks.tz, gap=clocks.gap, fold=clocks.fold)
    assert trigger.next_after(instant) == oracle.weekly_next(days, clocks, instant)


@MANY
@given(case=strategies.cases(), length=st.integers(1, 8))
def test_sequences_agree(case: Case, length: int) -> None:
    """Successive answers agree through a clock change and after it."""
    end = case.instant + timedelta(days=3)
    expected = cron_between(case.expression, case.clocks, case.instant, end)[:length]
    if not expected:
        return
    trigger = trigger_of(case.expression, case.clocks)
    found: list[datetime | None] = []
    after: datetime | None = case.instant
    while after and len(found) < len(expected):
        after = trigger.next_after(after)
        found.append(after)
    assert found == expected


# Every half hour of every change in these years, and the minutes at its edges.

TABLE = {
    "Europe/Berlin": (1980, 1996, 2026, 2077),
    "America/New_York": (1974, 2006, 2026, 2077),
    "Europe/London": (1971, 1972, 2026),
    "Australia/Sydney": (1982, 2008, 2026),
    "Australia/Lord_Howe": (1981, 1985, 2026, 2060),
    "Pacific/Chatham": (1974, 2026, 2060),
    "Antarctica/Troll": (2005, 2026),
    "America/Santiago": (1987, 2016, 2026),
    "Asia/Tehran": (1977, 1978, 1979, 2008, 2022),
    "Pacific/Apia": (2010, 2011, 2020),
    "Africa/Casablanca": (1978, 2012, 2018, 2026, 2080),
    "Africa/Monrovia": (1972,),
    "Asia/Kathmandu": (1986, 1985),
    "Asia/Kolkata": (2026,),
    "UTC": (2026,),
}


def times_to_try(change: datetime, tz: str) -> Iterator[tuple[int, int]]:
    yield from ((hour, minute) for hour in range(24) for minute in (0, 30))
    for side in (change - strategies.SECOND, change):
        for minutes in (-1, 0, 1):
            wall = wall_at(side, tz) + timedelta(minutes=minutes)
            yield wall.hour, wall.minute


@pytest.mark.parametrize("tz", TABLE)
def test_every_half_hour_of_a_change(tz: str) -> None:
    days = [change for year in TABLE[tz] for change in strategies.changes_in(tz, year)]
    for change in days or [utc("2026-03-08T07:00")]:
        for hour, minute in dict.fromkeys(times_to_try(change, tz)):
            for gap, fold in POLICIES:
                check_days_around(f"{minute} {hour} * * *", Clocks(tz, gap, fold), change)


def check_days_around(expression: str, clocks: Clocks, change: datetime) -> None:
    start, end = change - timedelta(days=2), change + timedelta(days=2)
    expected = cron_between(expression, clocks, start, end)
    found = list(trigger_of(expression, clocks).between(start, end))
    assert found == expected, (expression, clocks, change)


@pytest.mark.parametrize("tz", TABLE)
@pytest.mark.parametrize("hours", ["*", "*/2", "0-23", "1-3"])
def test_ranges_of_hours_through_a_change(tz: str, hours: str) -> None:
    for year in TABLE[tz][-1:]:
        for change in strategies.changes_in(tz, year):
            for gap, fold in POLICIES:
                check_days_around(f"*/15 {hours} * * *", Clocks(tz, gap, fold), change)


def test_every_zone_of_the_table_has_its_oddity() -> None:
    """The zones in the table still have the unusual changes for which they were chosen."""
    assert date(2011, 12, 30) in (change.date() for change in strategies.changes("Pacific/Apia"))
    shifts = {
        tz: {abs(strategies.shift_at(change, tz)) for change in strategies.changes(tz)}
        for tz in TABLE
    }
    assert timedelta(minutes=30) in shifts["Australia/Lord_Howe"]
    assert timedelta(hours=2) in shifts["Antarctica/Troll"]
    assert timedelta(hours=24) in shifts["Pacific/Apia"]
    assert timedelta(minutes=15) in shifts["Asia/Kathmandu"]
    assert timedelta(minutes=44, seconds=30) in shifts["Africa/Monrovia"]
    santiago = [
        wall_at(change, "America/Santiago") for change in strategies.changes("America/Santiago")
    ]
    assert {23, 1} <= {wall.hour for wall in santiago}
