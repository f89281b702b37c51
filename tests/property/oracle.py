"""The oracle of the trigger tests: cron, weekly and clock changes by brute force.

Written from the specification (DESIGN.md, section 4) and from nothing else. Takes the text of
a rule, a zone and an instant, walks wall time, and gives the instants at which the rule fires.
Slow on purpose: every step should be right at first sight.
"""

import calendar
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import product
from typing import Literal
from zoneinfo import ZoneInfo

Gap = Literal["next_valid", "shift", "skip"]
Fold = Literal["first", "second", "both"]

DAY = timedelta(days=1)
HORIZON = timedelta(days=40 * 365.25)

# A fire stands on its own wall date or, pushed out of a gap, on the next one; and a fold at
# midnight shows one date twice. Two days on either side cover both together.
SLACK = 2 * DAY

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
WEEKLY_KEYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
NAMES = {name: number for number, name in enumerate(MONTHS, start=1)} | {
    name: number for number, name in enumerate(WEEKDAYS)
}


@dataclass(frozen=True, slots=True)
class Clocks:
    """A zone, and the policies of a rule for clock changes."""

    tz: str = "UTC"
    gap: Gap = "next_valid"
    fold: Fold = "first"


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one cron expression, as text."""

    second: str
    minute: str
    hour: str
    day: str
    month: str
    weekday: str


def split(expression: str) -> Fields:
    """Return the fields of an expression: five, six with the seconds first, or a macro."""
    texts = MACROS.get(expression.lower(), expression).upper().split()
    texts[-1] = last_sunday_is_seven(texts[-1])
    return Fields(*texts) if len(texts) == 6 else Fields("0", *texts)


def last_sunday_is_seven(weekdays: str) -> str:
    """Replace a last `SUN` by 7: `SAT-SUN` is `6-7`, while `SUN-SAT` is `0-6`."""
    return re.sub(r"(?<!\bSUN)-SUN\b(?!#)", "-7", weekdays)


# The grammar: which texts are valid expressions.

VALUE = r"\d{1,2}|[A-Z]{3}"
PLAIN = re.compile(rf"(\*|(?P<first>{VALUE})(-(?P<last>{VALUE}))?)(/(?P<step>\d{{1,2}}))?")
LIMITS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 7),
}
SPANS = {"second": 60, "minute": 60, "hour": 24, "day": 31, "month": 12, "weekday": 7}
FIELD_NAMES = {"month": MONTHS, "weekday": WEEKDAYS}


def is_expression(expression: str, *, seconds: bool = False) -> bool:
    """Return whether this is a valid rule that can match at some time."""
    texts = MACROS.get(expression.lower(), expression).split()
    if len(texts) != 5 + (seconds and not expression.startswith("@")):
        return False
    fields = split(expression)
    return all(is_field(name, getattr(fields, name)) for name in LIMITS) and can_match(expression)


def is_field(name: str, text: str) -> bool:
    if text == "?":
        return name in ("day", "weekday")
    return all(is_day_rule(name, part) or is_plain(name, part) for part in text.split(","))


def is_day_rule(name: str, part: str) -> bool:
    if name == "day":
        return part in ("L", "LW") or bool(re.fullmatch(r"(0?[1-9]|[12]\d|3[01])W", part))
    names = "|".join(WEEKDAYS)
    return name == "weekday" and bool(re.fullmatch(rf"(0?[0-7]|{names})(L|#[1-5])", part))


def is_plain(name: str, part: str) -> bool:
    found = PLAIN.fullmatch(part)
    if not found:
        return False
    low, high = LIMITS[name]
    texts = [text for text in (found["first"], found["last"]) if text]
    if any(not text.isdigit() and text not in FIELD_NAMES.get(name, ()) for text in texts):
        return False
    numbers = [number(text) for text in texts]
    if name == "weekday" and numbers == [7] and found["step"]:
        return False  # From 7 to the end of the week, which is 6.
    return (
        all(low <= value <= high for value in numbers)
        and numbers == sorted(numbers)
        and 1 <= int(found["step"] or 1) <= SPANS[name]
    )


# The wall clock: which dates and times of day a rule names.


def matches(text: str, value: int, low: int, high: int) -> bool:
    """Return whether a field without day rules (`L`, `W`, `#`) matches a value."""
    return any(part_matches(part, value, low, high) for part in text.split(","))


def part_matches(part: str, value: int, low: int, high: int) -> bool:
    base, _, step = part.partition("/")
    if base in ("*", "?"):
        first, last = low, high
    elif "-" in base:
        first, last = (number(text) for text in base.split("-"))
    else:
        first = number(base)
        last = high if step else first
    return first <= value <= last and (value - first) % int(step or 1) == 0


def number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def day_of_month_matches(part: str, day: date) -> bool:
    if part == "L":
        return day == last_of_month(day)
    if part == "LW":
        return day == nearest_weekday(last_of_month(day))
    if part.endswith("W"):
        target = int(part[:-1])
        return target <= last_of_month(day).day and day == nearest_weekday(day.replace(day=target))
    return part_matches(part, day.day, 1, 31)


def last_of_month(day: date) -> date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


def nearest_weekday(target: date) -> date:
    """Return the nearest weekday in the same month, at most two days away."""
    for distance in (0, -1, 1, -2, 2):
        day = target + distance * DAY
        if day.month == target.month and day.weekday() < 5:
            return day
    raise AssertionError(target)


def day_of_week_matches(part: str, day: date) -> bool:
    weekday = day.isoweekday() % 7
    if part.endswith("L"):
        return number(part[:-1]) % 7 == weekday and (day + 7 * DAY).month != day.month
    if "#" in part:
        name, nth = part.split("#")
        return number(name) % 7 == weekday and (day.day - 1) // 7 + 1 == int(nth)
    # Sunday has two numbers, but an open range (`*`, `5/2`) ends on Saturday, the seventh day.
    return part_matches(part, weekday, 0, 6) or (weekday == 0 and part_matches(part, 7, 0, 6))


def date_matches(fields: Fields, day: date) -> bool:
    if not matches(fields.month, day.month, 1, 12):
        return False
    by_day = any(day_of_month_matches(part, day) for part in fields.day.split(","))
    by_weekday = any(day_of_week_matches(part, day) for part in fields.weekday.split(","))
    both_restricted = fields.day[0] not in "*?" and fields.weekday[0] not in "*?"
    return (by_day or by_weekday) if both_restricted else (by_day and by_weekday)


@lru_cache(maxsize=4096)
def times_of_day(fields: Fields) -> tuple[time, ...]:
    hours = [hour for hour in range(24) if matches(fields.hour, hour, 0, 23)]
    minutes = [minute for minute in range(60) if matches(fields.minute, minute, 0, 59)]
    seconds = [second for second in range(60) if matches(fields.second, second, 0, 59)]
    return tuple(time(*clock) for clock in product(hours, minutes, seconds))


@lru_cache(maxsize=4096)
def can_match(expression: str) -> bool:
    """Return whether any date matches. The calendar with its weekdays repeats after 400 years."""
    fields = split(expression)
    return any(date_matches(fields, day) for day in days(date(2000, 1, 1), date(2399, 12, 31)))


def days(first: date, last: date) -> Iterator[date]:
    while first <= last:
        yield first
        first += DAY


# The real clock: at which instants a wall time happens.


@lru_cache(maxsize=200_000)
def instants_of(wall: datetime, clocks: Clocks) -> tuple[datetime, ...]:
    """Return the instants of a wall time. `fold` selects the offset in folds and gaps (PEP 495)."""
    zone = ZoneInfo(clocks.tz)
    with_old_offset = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    with_new_offset = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if with_old_offset == with_new_offset:
        return (with_old_offset,)
    exists = wall_at(with_old_offset, clocks.tz) == wall
    if exists:
        readings = (with_old_offset, with_new_offset)
        return {"first": readings[:1], "second": readings[1:], "both": readings}[clocks.fold]
    return {
        "next_valid": (first_change(with_new_offset, with_old_offset, clocks.tz),),
        "shift": (with_old_offset,),
        "skip": (),
    }[clocks.gap]


def wall_at(instant: datetime, tz: str) -> datetime:
    return instant.astimezone(ZoneInfo(tz)).replace(tzinfo=None, fold=0)


def offset_at(instant: datetime, tz: str) -> timedelta:
    offset = instant.astimezone(ZoneInfo(tz)).utcoffset()
    assert offset is not None
    return offset


def first_change(before: datetime, after: datetime, tz: str) -> datetime:
    """Return the first second with another offset than `before`, by bisection."""
    old = offset_at(before, tz)
    assert offset_at(after, tz) != old
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        before, after = (middle, after) if offset_at(middle, tz) == old else (before, middle)
    return after


# Both together.

WallTimes = Callable[[date], Sequence[time]]


def fires(walls_on: WallTimes, clocks: Clocks, first: date, last: date) -> Iterator[datetime]:
    """Yield the fires of the wall dates first..last, unsorted and with duplicates."""
    for day in days(first, last):
        for at in walls_on(day):
            yield from instants_of(datetime.combine(day, at), clocks)


def first_after(walls_on: WallTimes, clocks: Clocks, instant: datetime) -> datetime | None:
    start = wall_at(instant, clocks.tz).date() - SLACK
    for day in days(start, start + HORIZON + SLACK):
        if not walls_on(day):
            continue
        if any(fire > instant for fire in fires(walls_on, clocks, day, day)):
            near = fires(walls_on, clocks, day, day + SLACK)
            return min(fire for fire in near if fire > instant)
    return None


def all_between(
    walls_on: WallTimes, clocks: Clocks, start: datetime, end: datetime
) -> list[datetime]:
    """Return the fires strictly after start, up to and including end."""
    first = wall_at(start, clocks.tz).date() - SLACK
    last = wall_at(end, clocks.tz).date() + SLACK
    return sorted({fire for fire in fires(walls_on, clocks, first, last) if start < fire <= end})


def cron_walls(expression: str) -> WallTimes:
    fields = split(expression)
    return lambda day: times_of_day(fields) if date_matches(fields, day) else ()


def cron_clocks(expression: str, clocks: Clocks) -> Clocks:
    """Return the policies for a rule. A starred hour follows elapsed time and ignores them."""
    if split(expression).hour.startswith("*"):
        return Clocks(clocks.tz, gap="skip", fold="both")
    return clocks


def cron_next(expression: str, clocks: Clocks, instant: datetime) -> datetime | None:
    fields = split(expression)
    if fields.second != "0" and fields.hour.startswith("*"):
        # Up to 86,400 fires a day are too many to walk wall time; search by instants instead.
        return cron_next_by_instants(expression, clocks.tz, instant)
    return first_after(cron_walls(expression), cron_clocks(expression, clocks), instant)


def cron_between(expression: str, clocks: Clocks, start: datetime, end: datetime) -> list[datetime]:
    return all_between(cron_walls(expression), cron_clocks(expression, clocks), start, end)


def cron_next_by_instants(expression: str, tz: str, instant: datetime) -> datetime:
    """Return the first second whose wall time matches: the definition for a starred hour."""
    fields = split(expression)
    at = frozenset(times_of_day(fields))
    second = instant.replace(microsecond=0) + timedelta(seconds=1)
    while True:
        wall = wall_at(second, tz)
        if wall.time() in at and date_matches(fields, wall.date()):
            return second
        second += timedelta(seconds=1)


WeeklyDays = Mapping[str, str | list[str] | None]


def weekly_walls(days_on: WeeklyDays) -> WallTimes:
    def walls_on(day: date) -> list[time]:
        texts = days_on.get(WEEKLY_KEYS[day.weekday()]) or []
        return [time.fromisoformat(text) for text in ([texts] if isinstance(texts, str) else texts)]

    return walls_on


def weekly_next(days_on: WeeklyDays, clocks: Clocks, instant: datetime) -> datetime | None:
    if not any(days_on.values()):
        return None
    return first_after(weekly_walls(days_on), clocks, instant)


def weekly_between(
    days_on: WeeklyDays, clocks: Clocks, start: datetime, end: datetime
) -> list[datetime]:
    return all_between(weekly_walls(days_on), clocks, start, end)
