"""Tests of rules in words: a table of examples, and searches for wrong descriptions."""

import re
from datetime import UTC, date, datetime, timedelta, timezone
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from duly.triggers.fields import MAX_LENGTH
from duly.triggers.words import cron_words, every_words, once_words, weekly_words

CRON = {
    "* * * * *": "Every minute",
    "*/5 * * * *": "Every 5 minutes",
    "0-59/5 * * * *": "Every 5 minutes",
    "0,30 * * * *": "Every 30 minutes",
    "*/7 * * * *": "Every 7 minutes from minute 0 of each hour",
    "2/5 * * * *": "Every 5 minutes from minute 2 of each hour",
    "10-40/2 * * * *": "Every 2 minutes from minute 10 to minute 40 of each hour",
    "*/25 * * * *": "At minutes 0, 25 and 50 past each hour",
    "30 * * * *": "At minute 30 past each hour",
    "@hourly": "Every hour",
    "0 */2 * * *": "Every 2 hours from 00:00 to 22:00",
    "0 */6 * * *": "Every day at 00:00, 06:00, 12:00 and 18:00",
    "15 1/3 * * *": "Every 3 hours from 01:15 to 22:15",
    "0 9-17 * * 1-5": "Every hour from 09:00 to 17:00, Monday to Friday",
    "*/5 9-17 * * *": "Every 5 minutes from 09:00 to 17:55",
    "* 9 * * *": "Every minute from 09:00 to 09:59",
    "* 1,5 * * *": "Every minute of hours 1 and 5",
    "*/5 */2 * * *": "Every 5 minutes of every 2nd hour from hour 0",
    "*/7 9-17 * * MON": "Every 7 minutes from minute 0 of hours 9 to 17 on Monday",
    "30 2 * * *": "Every day at 02:30",
    "30 2 ? * ?": "Every day at 02:30",
    "\t30  2 * * * ": "Every day at 02:30",
    "0,30 9,17 * * *": "Every day at 09:00, 09:30, 17:00 and 17:30",
    "0,10,20 1,5,9 * * *": "At minutes 0, 10 and 20 past hours 1, 5 and 9",
    "0-3,7 1-3,5 * * *": "At minutes 0 to 3 and 7 past hours 1 to 3 and 5",
    "@daily": "Every day at 00:00",
    "@Midnight": "Every day at 00:00",
    "@weekly": "At 00:00 on Sunday",
    "@monthly": "At 00:00 on day 1 of the month",
    "@yearly": "At 00:00 on 1 January",
    "0 9 * * MON": "At 09:00 on Monday",
    "0 9 * * mon,Thu": "At 09:00 on Monday and Thursday",
    "0 9 * * 7": "At 09:00 on Sunday",
    "0 9 * * 0-7": "Every day at 09:00",
    "0 9 * * FRI-SUN": "At 09:00, Friday to Sunday",
    "0 9 * * 0-4": "At 09:00, Sunday to Thursday",
    "0 9 * * 5/2": "At 09:00 on Friday",
    "0 9 * * */2": "At 09:00 on Tuesday, Thursday, Saturday and Sunday",
    "0 0 * * 5L": "At 00:00 on the last Friday of the month",
    "0 0 * * 7L": "At 00:00 on the last Sunday of the month",
    "0 0 * * 1#2": "At 00:00 on the second Monday of the month",
    "0 0 * * fri#5": "At 00:00 on the fifth Friday of the month",
    "0 0 * * MON,5L": "At 00:00 on Monday and on the last Friday of the month",
    "0 0 L * *": "At 00:00 on the last day of the month",
    "0 0 lw * *": "At 00:00 on the last weekday of the month",
    "0 0 15W * *": "At 00:00 on the weekday nearest day 15 of the month",
    "0 0 1,15,L * *": "At 00:00 on days 1 and 15 of the month and on the last day of the month",
    "0 0 1-7 * *": "At 00:00 on days 1 to 7 of the month",
    "0 0 1-15/2 * *": "At 00:00 on every 2nd day from day 1 to day 15 of the month",
    "0 0 */3 * *": "At 00:00 on every 3rd day from day 1 of the month",
    "0 0 13 * 5": "At 00:00 on day 13 of the month or on Friday",
    "0 0 13 * 1-5": "At 00:00 on day 13 of the month or on any day from Monday to Friday",
    "0 0 13,L * 1,5L": "At 00:00 on day 13 of the month or on the last day of the month"
    " or on Monday or on the last Friday of the month",
    "0 0 13 1 5": "At 00:00 on day 13 of the month or on Friday, in January",
    "0 0 13 * 0-6": "Every day at 00:00",
    "0 0 1-31 * 5": "Every day at 00:00",
    "0 0 */2 * 1": "At 00:00 on every 2nd day from day 1 of the month, if it is a Monday",
    "0 0 13 * */3": "At 00:00 on day 13 of the month, if it is a Wednesday, Saturday or Sunday",
    "0 0 */2 * 1-5": "At 00:00 on every 2nd day from day 1 of the month,"
    " if it is any day from Monday to Friday",
    "0 0 */2 2 1#1": "At 00:00 on every 2nd day from day 1 of the month,"
    " if it is the first Monday of the month, in February",
    "0 0 29 2 *": "At 00:00 on 29 February",
    "0 0 1,2 JUL *": "At 00:00 on 1 and 2 July",
    "0 0 1 1,3 *": "At 00:00 on day 1 of the month in January and March",
    "0 9 * 1,3 *": "Every day at 09:00 in January and March",
    "0 9 * jan-apr,6 *": "Every day at 09:00 in January to April and June",
    "0 9 * 1 1-5": "At 09:00, Monday to Friday, in January",
    "*/5 * * 12 *": "Every 5 minutes in December",
    "H H * * *": "Every day at a time fixed per schedule",
    "h h * * MON": "At a time fixed per schedule on Monday",
    "H 3 * * *": "Every day at a time from 03:00 to 03:59 fixed per schedule",
    "H(0-29) 3 * * *": "Every day at a time from 03:00 to 03:29 fixed per schedule",
    "H H(0-7) * * *": "Every day at a time from 00:00 to 07:59 fixed per schedule",
    "H(0-29) H(0-7) * * *": "At a minute from 0 to 29 fixed per schedule"
    " past an hour from 0 to 7 fixed per schedule",
    "H * * * *": "At a minute fixed per schedule past each hour",
    "0 H * * *": "At minute 0 past an hour fixed per schedule",
    "H/15 * * * *": "Every 15 minutes from a minute fixed per schedule",
    "H/12 9-17 * * *": "At every 12th minute (the first fixed per schedule) past hours 9 to 17",
    "H(0-29)/10 * * * *": "At every 10th minute from 0 to 29 (the first fixed per schedule)"
    " past each hour",
    "H(0-49)/15 * * * *": "At every 15th minute from 0 to 49 (the first fixed per schedule)"
    " past each hour",
    "0 0 H * *": "At 00:00 on a day of the month fixed per schedule",
    "0 0 * * H(1-5)": "At 00:00 on a day of the week from Monday to Friday fixed per schedule",
    "0 0 1 H(1-6) *": "At 00:00 on day 1 of the month in a month from January to June"
    " fixed per schedule",
}
CRON_WITH_SECONDS = {
    "* * * * * *": "Every second",
    "*/10 * * * * *": "Every 10 seconds",
    "*/7 * * * * *": "Every 7 seconds from second 0 of each minute",
    "0 * * * * *": "Every minute",
    "30 * * * * *": "At second 30 of each minute",
    "30 */5 * * * *": "At second 30 of every 5th minute from minute 0 past each hour",
    "30 0 9 * * MON": "At 09:00:30 on Monday",
    "0,30 0 9 * * *": "Every day at 09:00:00 and 09:00:30",
    "0 0 9 * * *": "Every day at 09:00",
    "*/10 * 9-17 * * *": "Every 10 seconds from 09:00:00 to 17:59:50",
    "* * 1,5 * * *": "Every second of each minute of hours 1 and 5",
    "H 5 * * * *": "At a second fixed per schedule of minute 5 past each hour",
    "@daily": "Every day at 00:00",
}
EVERY = {
    500: "Every 0.5 seconds",
    1_000: "Every second",
    1_500: "Every 1.5 seconds",
    60_000: "Every minute",
    61_500: "Every 1 minute 1.5 seconds",
    5_400_000: "Every 1 hour 30 minutes",
    86_400_000: "Every day",
    10 * 86_400_000: "Every 10 days",
    7 * 86_400_000: "Every week",
    14 * 86_400_000: "Every 2 weeks",
}
Week = list[list[str]]
OFF: list[str] = []
NINE, TEN, BOTH = ["09:00"], ["10:00"], ["17:30", "09:00"]
WEEKLY: list[tuple[Week, str]] = [
    ([NINE, OFF, OFF, BOTH, OFF, OFF, OFF], "Monday at 09:00, Thursday at 09:00 and 17:30"),
    ([NINE] * 5 + [OFF] * 2, "Monday to Friday at 09:00"),
    ([NINE] * 5 + [TEN] * 2, "Monday to Friday at 09:00, Saturday and Sunday at 10:00"),
    ([NINE, OFF, NINE, OFF, TEN, OFF, OFF], "Monday and Wednesday at 09:00, Friday at 10:00"),
    ([BOTH] * 7, "Every day at 09:00 and 17:30"),
    ([OFF] * 7, "Never (no day has a time)"),
]


@pytest.mark.parametrize(("expression", "words"), CRON.items())
def test_cron_words(expression: str, words: str) -> None:
    assert cron_words(expression) == words


@pytest.mark.parametrize(("expression", "words"), CRON_WITH_SECONDS.items())
def test_cron_words_with_seconds(expression: str, words: str) -> None:
    assert cron_words(expression, seconds=True) == words


@pytest.mark.parametrize(("interval_ms", "words"), EVERY.items())
def test_every_words(interval_ms: int, words: str) -> None:
    assert every_words(interval_ms) == words


@pytest.mark.parametrize(("times", "words"), WEEKLY)
def test_weekly_words(times: Week, words: str) -> None:
    assert weekly_words(times) == words


def test_once_words_are_in_utc_and_as_fine_as_needed() -> None:
    at = datetime(2026, 11, 16, 9, tzinfo=UTC)
    assert once_words(at) == "Once, on Monday 16 November 2026 at 09:00 UTC"
    east = at.astimezone(timezone(timedelta(hours=16)))
    assert once_words(east) == "Once, on Monday 16 November 2026 at 09:00 UTC"
    assert once_words(at.replace(second=5)).endswith("at 09:00:05 UTC")


def test_very_long_descriptions_are_shortened() -> None:
    endless = ",".join(f"{day}#{nth}" for day in range(7) for nth in range(1, 5))
    assert cron_words(f"0 0 * * {endless}") == "At the many times the cron expression lists"


SPANS = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def simple_token(random: Random, low: int, high: int) -> str:
    first, last = sorted((random.randint(low, high), random.randint(low, high)))
    step = random.randint(1, high - low)
    steps = [f"*/{step}", f"{first}-{last}/{step}", f"{first}/{step}"]
    return random.choice(["*", str(first), str(last), f"{first}-{last}", *steps])


def simple_field(random: Random, low: int, high: int) -> str:
    count = random.choice([1, 1, 1, 2, 3, 5])
    return ",".join(simple_token(random, low, high) for _ in range(count))


def expand(text: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for token in text.split(","):
        span, _, step = token.partition("/")
        first, _, last = span.partition("-")
        start = low if first == "*" else int(first)
        end = int(last) if last else high if step or first == "*" else start
        values.update(range(start, end + 1, int(step or 1)))
    return frozenset(values)


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, specials: list[str]) -> str:
    random = draw(st.randoms(use_true_random=False))
    first, last = sorted((random.randint(low, high), random.randint(low, high)))
    step = random.randint(1, last - first + 1)
    hashes = ["H", f"H/{min(step, 28)}", f"h({first}-{last})", f"H({first}-{last})/{step}"]
    tokens = [simple_field(random, low, high), random.choice(hashes), *specials]
    return draw(st.lists(st.sampled_from(tokens), min_size=1, max_size=4).map(",".join))


DAYS = st.just("?") | fields(1, 31, ["L", "LW", "1W", "15W", "31W"])
MONTHS = fields(1, 12, ["jan", "FEB-nov", "JUL"])
WEEKDAYS = st.just("?") | fields(0, 6, ["7", "mon", "FRI-SUN", "5L", "sunL", "1#2", "7#5"])
TIMES = [fields(*span, []) for span in SPANS[:3]]


@settings(max_examples=150, deadline=None)
@given(st.tuples(*TIMES, DAYS, MONTHS, WEEKDAYS), st.booleans())
def test_every_expression_has_one_short_line(parts: tuple[str, ...], seconds: bool) -> None:
    expression = " ".join(parts if seconds else parts[1:])
    assume(len(expression) <= MAX_LENGTH)
    words = cron_words(expression, seconds=seconds)
    assert 0 < len(words) < 400
    assert words == " ".join(words.split())
    assert words.startswith(("At ", "Every "))


def test_different_times_have_different_words() -> None:
    random, meanings = Random(1), dict[str, set[frozenset[int]]]()
    for _ in range(1_000):
        texts = [simple_field(random, *span) for span in SPANS[:3]]
        texts[0] = random.choice(["0", "0", texts[0]])
        second, minute, hour = (expand(t, *span) for t, span in zip(texts, SPANS, strict=False))
        moments = frozenset(3600 * h + 60 * m + s for h in hour for m in minute for s in second)
        words = cron_words(" ".join([*texts, "* * *"]), seconds=True)
        meanings.setdefault(words, set()).add(moments)
    assert [words for words, sets in meanings.items() if len(sets) > 1] == []


def matching_days(day: str, month: str, weekday: str) -> frozenset[date]:
    days, months, weekdays = (
        expand(text, *span) for text, span in zip((day, month, weekday), SPANS[3:], strict=True)
    )
    both = day[0] == "*" or weekday[0] == "*"
    calendar = (date(2024, 1, 1) + timedelta(days=n) for n in range(1461))
    return frozenset(
        d
        for d in calendar
        if d.month in months
        and (all if both else any)((d.day in days, d.isoweekday() % 7 in weekdays))
    )


def test_different_days_have_different_words() -> None:
    random, meanings = Random(2), dict[str, set[frozenset[date]]]()
    for _ in range(1_000):
        texts = [random.choice(["*", simple_field(random, *span)]) for span in SPANS[3:]]
        meanings.setdefault(cron_words(f"0 0 {' '.join(texts)}"), set()).add(matching_days(*texts))
    assert [words for words, sets in meanings.items() if len(sets) > 1] == []


def parse_numbers(text: str, high: int) -> set[int]:
    """Return the numbers in `each hour`, `hours 1 to 3 and 5` or `every 2nd hour from hour 1`."""
    if text.startswith("each "):
        return set(range(high + 1))
    if stepped := re.fullmatch(r"every (\d+).. \w+ from \w+ (\d+)(?: to \w+ (\d+))?", text):
        return set(range(int(stepped[2]), int(stepped[3] or high) + 1, int(stepped[1])))
    spans = (part.split(" to ") for part in re.split(", | and ", text.partition(" ")[2]))
    return {n for span in spans for n in range(int(span[0]), int(span[-1]) + 1)}


def parse_minutes(words: str) -> set[int]:
    """Return the minutes of the day that the words describe."""
    clocks = [int(h) * 60 + int(m) for h, m in re.findall(r"(\d\d):(\d\d)", words)]
    if words.startswith("Every day at "):
        return set(clocks)
    every = re.fullmatch(r"Every (\d+ )?(minute|hour)s?( from [\d:]+ to [\d:]+)?", words)
    if every:
        first, last = clocks or (0, 1439)
        return set(range(first, last + 1, int(every[1] or 1) * (60 if every[2] == "hour" else 1)))
    if within := re.fullmatch(r"Every (\d+ )?minutes?( from minute .*)? of (.*)", words):
        minutes = parse_numbers(f"every {int(within[1] or 1)}th m{within[2] or ' from m 0'}", 59)
        place = within[3]
    else:
        listed, place = words.removeprefix("At ").split(" past ")
        minutes = parse_numbers(listed, 59)
    return {h * 60 + m for h in parse_numbers(place, 23) for m in minutes}


def test_parsed_words_give_the_times_of_the_rule() -> None:
    random = Random(3)
    for _ in range(3_000):
        minute, hour = (simple_field(random, *span) for span in SPANS[1:3])
        expected = {h * 60 + m for h in expand(hour, 0, 23) for m in expand(minute, 0, 59)}
        words = cron_words(f"{minute} {hour} * * *")
        assert parse_minutes(words) == expected, (minute, hour, words)
