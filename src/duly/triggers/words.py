"""Time rules in plain English, one line of text each, for pages and logs.

The input is validated. The words come from the values a rule selects, not from its spelling, so
they are correct for every valid rule; values without a short phrase are listed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise

from duly.triggers.fields import Field, Item, parse_fields

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_UNITS_MS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))
_WEEK_MS = 604_800_000
_LISTED_MAX = 6  # more values are described by their step, if they have one
_LENGTH_MAX = 399
_OWN = "fixed per schedule"


@lru_cache(maxsize=2_048)  # a page shows fifty, and a live page is rendered again and again
def cron_words(expression: str, *, seconds: bool = False) -> str:
    """Return when a valid cron expression fires."""
    fields = parse_fields(expression, seconds=seconds)
    second, minute, hour, day, month, weekday = map(_read_field, fields)
    month_names = _join([_runs(month.values, month.name), *month.phrases])
    days, months = _day_words(day, weekday), "" if month.is_full else f" in {month_names}"
    if days and weekday.is_full and (date := _date_words(day, month)):
        days, months = date, ""
    moments = _moments(second, minute, hour)
    few = moments if len(moments) <= _LISTED_MAX else []
    if times := _join(_clocks(few)) or _hashed_time(second, minute, hour):
        words = f"At {times}{days}" if days else f"Every day at {times}"
    else:
        words = (_even_words(moments, hour) or _uneven_words(second, minute, hour)) + days
    # The comma keeps a month from being read as part of the last alternative only.
    words += f",{months}" if months and re.search(r",| or ", days) else months
    return words if len(words) <= _LENGTH_MAX else "At the many times the cron expression lists"


def weekly_words(times: Sequence[Sequence[str]]) -> str:
    """Return the times of each day, Monday first, with equal days grouped."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for weekday, day_times in enumerate(times):
        if day_times:
            groups.setdefault(tuple(sorted(set(day_times))), []).append(weekday)
    if not groups:
        return "Never (no day has a time)"
    return ", ".join(f"{_week_days(days)} at {_join(at)}" for at, days in groups.items())


def every_words(interval_ms: int) -> str:
    """Return an interval in its largest units; in weeks only without a remainder."""
    parts, rest_ms = [], interval_ms
    for unit, unit_ms in _UNITS_MS if interval_ms % _WEEK_MS else (("week", _WEEK_MS),):
        count, rest_ms = divmod(rest_ms, unit_ms)
        parts += [(str(count), unit)] if count else []
    if rest_ms:
        whole, thousandths = divmod(rest_ms, 1000)
        parts.append((f"{whole}.{thousandths:03}".rstrip("0").rstrip("."), "second"))
    if len(parts) == 1 and parts[0][0] == "1":
        return f"Every {parts[0][1]}"
    return "Every " + " ".join(f"{n} {unit}{'' if n == '1' else 's'}" for n, unit in parts)


def clock_words(at: datetime) -> str:
    """Return the time of day with as much precision as needed: 09:00, 09:00:05, 09:00:05.250."""
    if at.microsecond // 1000:
        return at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}"
    return at.strftime("%H:%M:%S" if at.second else "%H:%M")


def once_words(at: datetime) -> str:
    """Return one aware instant in UTC, with seconds only if needed."""
    return f"{local_once_words(at.astimezone(UTC))} UTC"


def local_once_words(at: datetime) -> str:
    """Return one wall time, with seconds only if needed."""
    date = f"{_WEEKDAYS[at.weekday()]} {at.day} {_MONTHS[at.month - 1]} {at.year}"
    return f"Once, on {date} at {clock_words(at)}"


@dataclass(frozen=True, slots=True)
class _Choice:
    """The selection of one field: plain values (Monday = 0) and phrases for the rest."""

    name: str
    high: int
    values: tuple[int, ...]
    phrases: tuple[str, ...]
    is_full: bool
    is_open: bool
    hashed: range
    """The range of a lone `H`, its step being the period; otherwise empty."""


def _read_field(field: Field) -> _Choice:
    shape, of_week = field.shape, field.shape.name == "day of week"
    numbers = {v for item in field.items if item.kind == "values" for v in item.values}
    values = tuple(sorted({(n - 1) % 7 for n in numbers} if of_week else numbers))
    is_full = len(values) == (7 if of_week else shape.high - shape.low + 1)
    phrases = [_phrase(field, item) for item in field.items if item.kind != "values"]
    spans = [i.values for i in field.items if i.kind == "hash" and isinstance(i.values, range)]
    return _Choice(
        name="day" if of_week else shape.name.removesuffix(" of month"),
        high=shape.high,
        values=values,
        phrases=() if is_full else tuple(dict.fromkeys(phrases)),
        is_full=is_full,
        is_open=field.is_open,
        hashed=spans[0] if len(spans) == len(field.items) == 1 else range(0),
    )


def _phrase(field: Field, item: Item) -> str:
    """Return the phrase of an H, or of a day that depends on the month."""
    if isinstance(item.values, range):
        return _hash_phrase(field, item.values)
    number, nth = item.values
    weekday = _label("day of week", number)
    phrases = {
        "last": "last day",
        "last_weekday": "last weekday",
        "nearest_weekday": f"weekday nearest day {number}",
        "last_of": f"last {weekday}",
        "nth_of": f"{_NTH[nth]} {weekday}",
    }
    return f"the {phrases[item.kind]} of the month"


def _hash_phrase(field: Field, span: range) -> str:
    shape = field.shape
    name = shape.name.replace(" of ", " of the ")
    ends = [span.start, span.stop - 1]
    whole = [shape.low, shape.hash_high or shape.high]
    labels = [_label(shape.name, end) for end in ends]
    limits = "" if ends == whole else " from " + " to ".join(labels)
    if len(span) > 1:
        return f"every {_ordinal(span.step)} {name}{limits} (the first {_OWN})"
    return f"{'an' if name == 'hour' else 'a'} {name}{limits} {_OWN}"


def _moments(second: _Choice, minute: _Choice, hour: _Choice) -> list[int]:
    """Return every second of the day that fires; [] if `H` decides it."""
    if second.phrases or minute.phrases or hour.phrases:
        return []
    minutes = [h * 3600 + m * 60 for h in hour.values for m in minute.values]
    return [start + s for start in minutes for s in second.values]


def _hashed_time(second: _Choice, minute: _Choice, hour: _Choice) -> str:
    """Return the phrase of one hashed time: `H 3` is from 03:00 to 03:59; "" if not contiguous."""
    minutes, hours = minute.hashed, hour.hashed
    if len(hour.values) == 1 and not hour.phrases:
        hours = range(hour.values[0], hour.values[0] + 1)
    if second.phrases or second.values != (0,) or (len(minutes), len(hours)) != (1, 1):
        return ""
    if (minutes.start, minutes.stop) != (0, 60) and hours.stop > hours.start + 1:
        return ""
    ends = (hours.start, minutes.start), (hours.stop - 1, minutes.stop - 1)
    first, last = _clocks([h * 3600 + m * 60 for h, m in ends])
    limits = "" if (first, last) == ("00:00", "23:59") else f" from {first} to {last}"
    return f"a time{limits} {_OWN}"


def _even_words(moments: list[int], hour: _Choice) -> str:
    """Return the phrase of evenly spaced times, all day or from one time to another, or ""."""
    step = _step(moments)
    if not step or (hour.is_full and moments[0]):
        return ""
    first, last = _clocks([moments[0], moments[-1]])
    return every_words(step * 1000) + ("" if hour.is_full else f" from {first} to {last}")


def _uneven_words(second: _Choice, minute: _Choice, hour: _Choice) -> str:
    if second.values == (0,) and not second.phrases:
        span = minute.hashed
        even = len(span) > 1 and (span.start, span.stop, 60 % span.step) == (0, 60, 0)
        if even and hour.is_full:
            return f"{every_words(span.step * 60_000)} from a minute {_OWN}"
        words = _finest_words(minute, 60_000)
        return f"{words} {'past' if words.startswith('At') else 'of'} {_place(hour)}"
    words = f"{_finest_words(second, 1000)} of {_place(minute)}"
    if minute.is_full:
        return words if hour.is_full else f"{words} of {_place(hour)}"
    return f"{words} past {_place(hour)}"


def _finest_words(choice: _Choice, unit_ms: int) -> str:
    values, step = choice.values, _step(choice.values)
    if choice.phrases or not step or len(values) <= _LISTED_MAX:
        return f"At {_place(choice)}"
    # A step that does not divide 60 restarts every hour: without a start it would read as even.
    even = (values[0], values[-1]) == (0, 60 - step)
    return every_words(step * unit_ms) + ("" if even else _from_to(choice, step))


def _place(choice: _Choice) -> str:
    numbers = _numbers(choice) if choice.values else ""
    return f"each {choice.name}" if choice.is_full else _join([numbers, *choice.phrases])


def _numbers(choice: _Choice) -> str:
    name, values, step = choice.name, choice.values, _step(choice.values)
    if len(values) == 1:
        return f"{name} {values[0]}"
    if step > 1 and len(values) > _LISTED_MAX:
        return f"every {_ordinal(step)} {name}{_from_to(choice, step)}"
    return f"{name}s {_runs(values)}"


def _from_to(choice: _Choice, step: int) -> str:
    first, last = choice.values[0], choice.values[-1]
    end = f" to {choice.name} {last}" if last + step <= choice.high else ""
    return f" from {choice.name} {first}{end}"


def _day_words(day: _Choice, weekday: _Choice) -> str:
    """Return the days: two restricted day fields are alternatives (Vixie), else both apply."""
    month_days = [f"{_numbers(day)} of the month"] if day.values else []
    month_days += day.phrases
    if not day.is_open and not weekday.is_open:
        either = " on " + " or on ".join(month_days + _days_of_week(weekday, "or"))
        return "" if day.is_full or weekday.is_full else either
    days = "" if day.is_full else " on " + " and on ".join(month_days)
    if weekday.is_full:
        return days
    run = _week_run(weekday.values)
    if days:
        article = "a " if weekday.values and not run else ""
        return f"{days}, if it is {article}{' or '.join(_days_of_week(weekday, 'or'))}"
    if run and not weekday.phrases:
        return f", {run}"
    return " on " + " and on ".join(_days_of_week(weekday, "and"))


def _days_of_week(weekday: _Choice, last: str) -> list[str]:
    any_day = "any day from " if _week_run(weekday.values) else ""
    plain = [any_day + _week_days(weekday.values, last)] if weekday.values else []
    return [*plain, *weekday.phrases]


def _date_words(day: _Choice, month: _Choice) -> str:
    """Return `29 February` for a few plain days of one month, else ""."""
    if day.phrases or month.phrases or len(month.values) != 1 or len(day.values) > _LISTED_MAX:
        return ""
    return f" on {_runs(day.values)} {_MONTHS[month.values[0] - 1]}"


def _week_days(weekdays: Sequence[int], last: str = "and") -> str:
    if len(weekdays) == 7:
        return "Every day"
    return _week_run(weekdays) or _join([_WEEKDAYS[day] for day in weekdays], last)


def _week_run(weekdays: Sequence[int]) -> str:
    """Return three or more days in a row as a range (Monday follows Sunday), else ""."""
    starts = [day for day in weekdays if (day - 1) % 7 not in weekdays]
    if len(weekdays) < 3 or len(starts) != 1:
        return ""
    return f"{_WEEKDAYS[starts[0]]} to {_WEEKDAYS[(starts[0] + len(weekdays) - 1) % 7]}"


def _runs(values: Sequence[int], name: str = "") -> str:
    runs: list[list[str]] = []
    for i, value in enumerate(values):
        if i and value == values[i - 1] + 1:
            runs[-1].append(_label(name, value))
        else:
            runs.append([_label(name, value)])
    short = (run if len(run) < 3 else [f"{run[0]} to {run[-1]}"] for run in runs)
    return _join([part for run in short for part in run])


def _step(values: Sequence[int]) -> int:
    """Return the distance between neighbours if it is the same for all, else 0."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 else 0


def _clocks(moments: list[int]) -> list[str]:
    texts = [f"{m // 3600:02}:{m // 60 % 60:02}:{m % 60:02}" for m in moments]
    return texts if any(m % 60 for m in moments) else [text[:5] for text in texts]


def _label(name: str, number: int) -> str:
    if name == "day of week":
        return _WEEKDAYS[(number - 1) % 7]
    return _MONTHS[number - 1] if name == "month" else str(number)


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number < 14 else endings.get(number % 10, 'th')}"


def _join(parts: Sequence[str], last: str = "and") -> str:
    *others, final = [part for part in parts if part] or [""]
    return f"{', '.join(others)} {last} {final}" if others else final
