"""Tests of zones: all clock changes in the zone files, and the behaviour of rules at them.

The zone files are parsed here, so that the segments found by probing are compared with the data
in the files rather than with zoneinfo.
"""

import calendar
import re
import struct
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import pairwise, product
from zoneinfo import ZoneInfo

import pytest

from duly import Trigger, cron
from duly.triggers.zone import Fold, Gap, Zone, zone

Change = tuple[int, int, int]
"""(instant, offset before, offset from then on), in seconds."""

GAPS: tuple[Gap, ...] = ("next_valid", "shift", "skip")
FOLDS: tuple[Fold, ...] = ("first", "second", "both")
DAY, HOUR = 86_400, 3600
END = 7_258_118_400
"""2200-01-01."""
NAME = r"(?:[A-Za-z]+|<[^>]+>)"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@cache
def regions() -> dict[str, list[str]]:
    """Return the names in the tzdata package by their first part, one name for equal files."""
    seen: dict[bytes, str] = {}
    for name in files("tzdata").joinpath("zones").read_text().split():
        seen.setdefault(zone_file(name), name)
    found: dict[str, list[str]] = defaultdict(list)
    for name in seen.values():
        found[name.partition("/")[0] if "/" in name else "others"].append(name)
    return dict(found)


def zone_file(name: str) -> bytes:
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def written_changes(name: str) -> list[Change]:
    """Return the changes of offset from 1970 to 2199 in the TZif file of a zone (RFC 9636).

    A header of 44 bytes, a block with 4-byte times, then both again with 8-byte times; at the
    end, between line feeds, the rule for all times after the last one listed.
    """
    content = zone_file(name)
    isut, isstd, leap, times, types, chars = struct.unpack_from(">6l", content, 20)
    second = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    assert content[:4] == content[second : second + 4] == b"TZif"
    times, types = struct.unpack_from(">2l", content, second + 32)
    start = second + 44
    instants = struct.unpack_from(f">{times}q", content, start)
    kinds = struct.unpack_from(f">{times}B", content, start + times * 8)
    offsets = [
        struct.unpack_from(">l", content, start + times * 9 + 6 * kind)[0] for kind in range(types)
    ]
    listed = [(instant, offsets[kind]) for instant, kind in zip(instants, kinds, strict=True)]
    last = instants[-1] if instants else 0
    listed += [each for each in ruled(content.split(b"\n")[-2].decode()) if each[0] > last]
    return changes_of(listed, offsets[0])


def changes_of(listed: list[tuple[int, int]], before: int) -> list[Change]:
    """Return the (instant, offset) pairs in 1970–2199 that change the offset."""
    found: list[Change] = []
    for instant, offset in listed:
        if offset != before and 0 < instant < END:
            found.append((instant, before, offset))
        before = offset
    return found


def ruled(rule: str) -> list[tuple[int, int]]:
    """Return (instant, offset) of a POSIX rule such as CET-1CEST,M3.5.0,M10.5.0/3, 1970–2199."""
    match = re.fullmatch(rf"{NAME}([-+:0-9]+)(?:{NAME}([-+:0-9]*),(.+),(.+))?", rule)
    assert match, rule
    standard = -clock(match[1])
    if match[3] is None:
        return []
    summer = -clock(match[2]) if match[2] else standard + HOUR
    found = []
    for year in range(1970, 2200):
        found.append((wall(match[3], year) - standard, summer))
        found.append((wall(match[4], year) - summer, standard))
    return sorted(found)


def wall(rule: str, year: int) -> int:
    """Return the seconds of `M10.5.0/3`: 03:00 on the last (5) Sunday (0) of month 10."""
    date, _, time = rule.partition("/")
    month, week, weekday = (int(part) for part in date.removeprefix("M").split("."))
    weeks = [days[(weekday - 1) % 7] for days in calendar.monthcalendar(year, month)]
    of_month = [day for day in weeks if day]
    day = of_month[min(week, len(of_month)) - 1]
    midnight = datetime(year, month, day, tzinfo=UTC).timestamp()
    return int(midnight) + (clock(time) if time else 2 * HOUR)


def clock(text: str) -> int:
    """Return the seconds of `[-+]hh[:mm[:ss]]`."""
    parts = [int(part) for part in text.lstrip("-+").split(":")]
    seconds = sum(part * unit for part, unit in zip(parts, (HOUR, 60, 1), strict=False))
    return -seconds if text.startswith("-") else seconds


def from_package(name: str) -> Zone:
    """Return the zone from the tzdata package, even if the machine has zone files."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return Zone(name, ZoneInfo.from_file(file, key=name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Europe/Berlin", ("2026-03-29 01:00", 1, 2)),  # ruled
        ("Europe/Berlin", ("1980-04-06 01:00", 1, 2)),  # listed
        ("America/New_York", ("2026-11-01 06:00", -4, -5)),
        ("Europe/Dublin", ("2026-10-25 01:00", 1, 0)),  # its standard time is that of summer
        ("Pacific/Chatham", ("2026-09-26 14:00", 12.75, 13.75)),
        ("Pacific/Apia", ("2011-12-30 10:00", -10, 14)),
        ("Africa/Monrovia", ("1972-01-07 00:44:30", -44.5 / 60, 0)),
    ],
)
def test_the_reader_of_zone_files(name: str, expected: tuple[str, float, float]) -> None:
    instant, before, after = expected
    change = (at(instant).timestamp(), before * HOUR, after * HOUR)
    assert change in written_changes(name)


def test_the_package_has_all_zones() -> None:
    assert sum(map(len, regions().values())) > 300
    assert {"Africa", "America", "Asia", "Europe", "Pacific"} <= regions().keys()


@pytest.mark.parametrize("region", regions())
def test_no_change_is_missed(region: str) -> None:
    for name in regions()[region]:
        assert from_package(name).changes(0, END - 1) == written_changes(name), name


@pytest.mark.parametrize("region", regions())
def test_changes_are_further_apart_than_the_probes(region: str) -> None:
    """Probing every third day of wall time finds two changes if they are five days apart."""
    for name in regions()[region]:
        instants = [change for change, _, _ in written_changes(name)]
        distances = [later - earlier for earlier, later in pairwise(instants)]
        assert min(distances, default=5 * DAY) >= 5 * DAY, name


@pytest.mark.parametrize(
    "name",
    [
        *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"),
        *("Pacific/Chatham", "America/Santiago"),
    ],
)
def test_offsets_around_changes_after_2037(name: str) -> None:
    begin = int(at("2038-01-01 00:00").timestamp())
    found, info = zone(name), ZoneInfo(name)
    changes = found.changes(begin, END - 1)
    assert len(changes) == 2 * (2200 - 2038)
    for change, _, _ in changes:
        for instant in (change - 1, *range(change - 12 * HOUR, change + 12 * HOUR, HOUR)):
            local = datetime.fromtimestamp(instant, info).utcoffset()
            assert local == timedelta(seconds=found.offset_at(instant)), instant


def test_changes_a_century_ahead_by_hand() -> None:
    """Last Sundays of March and October 2126, at 01:00 UTC: the 31st and the 27th."""
    begin = int(datetime(2126, 1, 1, tzinfo=UTC).timestamp())
    changes = zone("Europe/Berlin").changes(begin, begin + 365 * DAY)
    assert [(datetime.fromtimestamp(each, UTC), old, new) for each, old, new in changes] == [
        (datetime(2126, 3, 31, 1, tzinfo=UTC), 3600, 7200),
        (datetime(2126, 10, 27, 1, tzinfo=UTC), 7200, 3600),
    ]


def test_bounds_of_changes() -> None:
    """The range excludes its first bound and includes its second."""
    change = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp())
    berlin = zone("Europe/Berlin")
    assert berlin.changes(change - 1, change) == [(change, 3600, 7200)]
    assert berlin.changes(change, change + DAY) == []
    assert berlin.changes(change - DAY, change - 1) == []


def test_a_zone_without_changes() -> None:
    assert zone("Etc/GMT+5").changes(0, 4_000_000_000) == []
    assert {zone("Etc/GMT+5").offset_at(s) for s in (0, 4_000_000_000)} == {-5 * HOUR}


def fires(trigger: Trigger, after: str, n: int) -> list[str]:
    """Return the next n times in UTC, to the minute, without the year."""
    found, last = [], at(after)
    for _ in range(n):
        following = trigger.next_after(last)
        assert following is not None
        last = following
        found.append(f"{last:%m-%d %H:%M}")
    return found


# For each zone, the times that a clock change removes or repeats, in a window from the day before.
GAP_NIGHTS = {
    # 02:00 becomes 03:00 at 01:00 UTC.
    "Europe/Berlin": (
        "30 2 * * *",
        "2026-03-28 12:00",
        "03-29 01:00",
        "03-29 01:30",
        "03-30 00:30",
    ),
    # 02:00 becomes 03:00 at 07:00 UTC.
    "America/New_York": (
        *("30 2 * * *", "2026-03-07 12:00"),
        *("03-08 07:00", "03-08 07:30", "03-09 06:30"),
    ),
    # 02:00 becomes 02:30 at 15:30 UTC of the day before.
    "Australia/Lord_Howe": (
        *("15 2 * * *", "2026-10-03 12:00"),
        *("10-03 15:30", "10-03 15:45", "10-04 15:15"),
    ),
    # 02:45 becomes 03:45 at 14:00 UTC of the day before.
    "Pacific/Chatham": (
        *("0 3 * * *", "2026-09-26 12:00"),
        *("09-26 14:00", "09-26 14:15", "09-27 13:15"),
    ),
    # 01:00 becomes 03:00 at 01:00 UTC.
    "Antarctica/Troll": (
        *("30 2 * * *", "2026-03-28 12:00"),
        *("03-29 01:00", "03-29 02:30", "03-30 00:30"),
    ),
    # Midnight becomes 01:00 at 04:00 UTC.
    "America/Santiago": (
        *("30 0 * * *", "2026-09-05 12:00"),
        *("09-06 04:00", "09-06 04:30", "09-07 03:30"),
    ),
    # 30 December does not exist; its 09:00, shifted by a day, is 09:00 of the 31st.
    "Pacific/Apia": (
        *("0 9 * * *", "2011-12-29 20:00"),
        *("12-30 10:00", "12-30 19:00", "12-30 19:00"),
    ),
}
FOLD_NIGHTS = {
    # 03:00 becomes 02:00 at 01:00 UTC.
    "Europe/Berlin": (
        "30 2 * * *",
        "2026-10-24 12:00",
        "10-25 00:30",
        "10-25 01:30",
        "10-26 01:30",
    ),
    # 02:00 becomes 01:00 at 06:00 UTC.
    "America/New_York": (
        *("30 1 * * *", "2026-10-31 12:00"),
        *("11-01 05:30", "11-01 06:30", "11-02 06:30"),
    ),
    # 02:00 becomes 01:30 at 15:00 UTC of the day before.
    "Australia/Lord_Howe": (
        *("45 1 * * *", "2026-04-04 12:00"),
        *("04-04 14:45", "04-04 15:15", "04-05 15:15"),
    ),
    # 03:45 becomes 02:45 at 14:00 UTC of the day before.
    "Pacific/Chatham": (
        *("0 3 * * *", "2026-04-04 12:00"),
        *("04-04 13:15", "04-04 14:15", "04-05 14:15"),
    ),
    # 03:00 becomes 01:00 at 01:00 UTC.
    "Antarctica/Troll": (
        *("30 1 * * *", "2026-10-24 12:00"),
        *("10-24 23:30", "10-25 01:30", "10-26 01:30"),
    ),
    # Midnight becomes 23:00 at 03:00 UTC.
    "America/Santiago": (
        *("30 23 * * *", "2026-04-04 12:00"),
        *("04-05 02:30", "04-05 03:30", "04-06 03:30"),
    ),
    # 04:00 becomes 03:00 at 14:00 UTC of the day before.
    "Pacific/Apia": (
        *("30 3 * * *", "2012-03-31 00:00"),
        *("03-31 13:30", "03-31 14:30", "04-01 14:30"),
    ),
}
PAIRS = [*product(GAP_NIGHTS, GAPS, FOLDS)]


@pytest.mark.parametrize(("tz", "gap", "fold"), PAIRS)
def test_a_time_that_does_not_exist(tz: str, gap: Gap, fold: Fold) -> None:
    expression, after, moved, shifted, following = GAP_NIGHTS[tz]
    first = {"next_valid": moved, "shift": shifted, "skip": following}[gap]
    expected = list(dict.fromkeys([first, following]))
    found = fires(cron(expression, tz=tz, gap=gap, fold=fold), after, len(expected))
    assert found == expected


@pytest.mark.parametrize(("tz", "gap", "fold"), PAIRS)
def test_a_time_that_exists_twice(tz: str, gap: Gap, fold: Fold) -> None:
    expression, after, first, second, following = FOLD_NIGHTS[tz]
    that_day = {"first": [first], "second": [second], "both": [first, second]}[fold]
    found = fires(cron(expression, tz=tz, gap=gap, fold=fold), after, len(that_day) + 1)
    assert found == [*that_day, following]


def test_apia_goes_from_the_29th_to_the_31st() -> None:
    nightly = cron("0 0 * * *", tz="Pacific/Apia", gap="skip")
    assert fires(nightly, "2011-12-28 12:00", 3) == [
        "12-29 10:00",  # the 29th, ten hours behind
        "12-30 10:00",  # the 31st, fourteen hours ahead
        "12-31 10:00",
    ]


LOST_TOGETHER = [
    ("0,15,30 2 * * *", "next_valid", ["03-29 01:00", "03-30 00:00"]),
    ("0,15,30 2 * * *", "shift", ["03-29 01:00", "03-29 01:15", "03-29 01:30", "03-30 00:00"]),
    ("0,15,30 2 * * *", "skip", ["03-30 00:00"]),
    ("30 2,3 * * *", "next_valid", ["03-29 01:00", "03-29 01:30", "03-30 00:30"]),
    ("30 2,3 * * *", "shift", ["03-29 01:30", "03-30 00:30"]),
    ("0 2,3 * * *", "next_valid", ["03-29 01:00", "03-30 00:00"]),
    ("30 2 29 3 *", "next_valid", ["03-29 01:00", "03-29 00:30"]),
    ("30 2 29 3 *", "skip", ["03-29 00:30", "03-29 00:30"]),
]


@pytest.mark.parametrize(("expression", "gap", "expected"), LOST_TOGETHER)
def test_lost_times_run_once_at_one_instant(expression: str, gap: Gap, expected: list[str]) -> None:
    trigger = cron(expression, tz="Europe/Berlin", gap=gap)
    found = fires(trigger, "2026-03-29 00:00", len(expected))
    assert found == expected


OPEN_HOURS = [
    # A starred hour fires at every elapsed hour or half hour, through gaps and folds.
    ("0 * * * *", "2026-03-28 23:30", ["00:00", "01:00", "02:00"]),
    ("0 * * * *", "2026-10-24 23:30", ["00:00", "01:00", "02:00"]),
    ("*/30 * * * *", "2026-10-25 00:15", ["00:30", "01:00", "01:30", "02:00"]),
    # 02:30 does not exist, 04:30 does; in autumn 02:30 exists twice.
    ("30 */2 * * *", "2026-03-28 23:00", ["23:30", "02:30", "04:30"]),
    ("30 */2 * * *", "2026-10-24 22:00", ["22:30", "00:30", "01:30", "03:30"]),
]


@pytest.mark.parametrize(("gap", "fold"), [*product(GAPS, FOLDS)])
@pytest.mark.parametrize(("expression", "after", "expected"), OPEN_HOURS)
def test_an_open_hour_fires_at_every_real_match(
    expression: str, after: str, expected: list[str], gap: Gap, fold: Fold
) -> None:
    trigger = cron(expression, tz="Europe/Berlin", gap=gap, fold=fold)
    assert [each[6:] for each in fires(trigger, after, len(expected))] == expected


def test_an_open_hour_in_new_york_as_in_the_vectors() -> None:
    trigger = cron("*/30 * * * *", tz="America/New_York")
    found = fires(trigger, "2026-11-01 04:45", 4)
    assert [each[6:] for each in found] == ["05:00", "05:30", "06:00", "06:30"]


def test_a_written_out_hour_is_not_an_open_one() -> None:
    trigger = cron("30 0-23 * * *", tz="Europe/Berlin")
    spring, autumn = fires(trigger, "2026-03-29 00:00", 4), fires(trigger, "2026-10-25 00:00", 3)
    assert [each[6:] for each in spring] == ["00:30", "01:00", "01:30", "02:30"]
    assert [each[6:] for each in autumn] == ["00:30", "02:30", "03:30"]


@pytest.mark.parametrize(
    ("after", "fold", "expected"),
    [
        ("2026-10-25 00:30", "first", "10-26 01:30"),
        ("2026-10-25 00:30", "both", "10-25 01:30"),
        ("2026-10-25 00:45", "second", "10-25 01:30"),
        ("2026-10-25 01:15", "first", "10-26 01:30"),
        ("2026-10-25 01:30", "second", "10-26 01:30"),
    ],
)
def test_asked_in_the_middle_of_a_fold(after: str, fold: Fold, expected: str) -> None:
    assert fires(cron("30 2 * * *", tz="Europe/Berlin", fold=fold), after, 1) == [expected]
