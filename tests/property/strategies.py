"""Strategies for the trigger tests: expressions, zones, clock changes and instants.

Expressions come from one generator on `random.Random`. The differential test seeds it. Hypothesis
supplies its own `Random` and can shrink what it finds, so every choice lists the simplest form
first.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from duly import Cron, cron
from tests.property.oracle import (
    MONTHS,
    WEEKDAYS,
    WEEKLY_KEYS,
    Clocks,
    Fold,
    Gap,
    first_change,
    offset_at,
)

DEPTH = int(os.environ.get("DULY_TEST_DEPTH", "1"))
"""Factor for the number of examples; `make test-deep` sets it to ten."""
EXAMPLES_MANY = 200 * DEPTH
EXAMPLES = 70 * DEPTH
EXAMPLES_FEW = 25 * DEPTH

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
MANY = settings(max_examples=EXAMPLES_MANY, deadline=None, suppress_health_check=SLOW_IS_FINE)
USUAL = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW_IS_FINE)
FEW = settings(max_examples=EXAMPLES_FEW, deadline=None, suppress_health_check=SLOW_IS_FINE)

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Europe/London",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Antarctica/Troll",
    "America/Santiago",
    "Asia/Tehran",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "Asia/Kathmandu",
)
GAPS: tuple[Gap, ...] = ("next_valid", "shift", "skip")
FOLDS: tuple[Fold, ...] = ("first", "second", "both")
POLICIES = tuple(product(GAPS, FOLDS))

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(2100, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


# Clock changes.


@cache
def changes(tz: str) -> tuple[datetime, ...]:
    """Return all changes of offset from 1970 to 2100: probed daily, then bisected to the second."""
    found = []
    for day in range((LAST - FIRST).days):
        before = FIRST + timedelta(days=day)
        after = before + timedelta(days=1)
        if offset_at(before, tz) != offset_at(after, tz):
            found.append(first_change(before, after, tz))
    return tuple(found)


def changes_in(tz: str, year: int) -> list[datetime]:
    return [change for change in changes(tz) if change.year == year]


def shift_at(change: datetime, tz: str) -> timedelta:
    return offset_at(change, tz) - offset_at(change - SECOND, tz)


def near_change(tz: str, instant: datetime, within: timedelta) -> bool:
    return any(abs(change - instant) <= within for change in changes(tz))


# Expressions.

Form = Callable[[Random], str]


@dataclass(frozen=True, slots=True)
class Span:
    """The values of one field; `near` are those around clock changes."""

    low: int
    high: int
    near: int | None = None

    def pick(self, random: Random) -> int:
        if self.near is not None and random.randint(0, 3):
            return random.randint(self.low, self.near)
        return random.randint(self.low, self.high)

    def pair(self, random: Random) -> tuple[int, int]:
        first = min(self.pick(random), self.high - 1)
        return first, random.randint(first + 1, self.high)

    def step(self, random: Random) -> int:
        return random.randint(1, self.high - self.low)


MINUTES = Span(0, 59)
HOURS = Span(0, 23, near=4)
DAYS = Span(1, 31)
MONTH_SPAN = Span(1, 12)
WEEKDAY_SPAN = Span(0, 7)


def one_of(random: Random, *forms: Form) -> str:
    return random.choice(forms)(random)


def star(_: Random) -> str:
    return "*"


def value(span: Span) -> Form:
    return lambda random: str(span.pick(random))


def some(form: Form) -> Form:
    return lambda random: ",".join(form(random) for _ in range(random.randint(2, 3)))


def range_of(span: Span) -> Form:
    return lambda random: "{}-{}".format(*span.pair(random))


def stepped_star(span: Span) -> Form:
    return lambda random: f"*/{span.step(random)}"


def stepped_range(span: Span) -> Form:
    return lambda random: "{}-{}/{}".format(*span.pair(random), span.step(random))


def stepped_value(span: Span) -> Form:
    return lambda random: f"{span.pick(random)}/{span.step(random)}"


def numbers(span: Span) -> list[Form]:
    """Return forms for a field. An open range of weekdays ends on 6, a written one may end on 7."""
    opened = span if span.high != 7 else Span(0, 6)
    plain = [value(span), range_of(span), stepped_range(span), stepped_value(opened)]
    return [value(span), *plain, some(value(span)), some(lambda random: one_of(random, *plain))]


def minute(random: Random) -> str:
    usual: list[Form] = [value(MINUTES)] * 6
    return one_of(random, *usual, star, stepped_star(MINUTES), *numbers(MINUTES))


def hour(random: Random) -> str:
    usual = [value(HOURS)] * 8
    return one_of(random, *usual, star, stepped_star(HOURS), *numbers(HOURS))


def nearest(random: Random) -> str:
    return f"{random.randint(1, 31)}W"


def day_of_month(random: Random) -> str:
    def rules(random: Random) -> str:
        return random.choice(["L", "LW", nearest(random)])

    stars: list[Form] = [star] * 12
    return one_of(
        random,
        *stars,
        lambda _: "?",
        rules,
        nearest,
        stepped_star(DAYS),
        *numbers(DAYS),
        some(lambda random: one_of(random, rules, value(DAYS))),
    )


def month(random: Random) -> str:
    def name(random: Random) -> str:
        return random.choice(MONTHS)

    def name_range(random: Random) -> str:
        first, last = MONTH_SPAN.pair(random)
        return f"{MONTHS[first - 1]}-{MONTHS[last - 1]}"

    stars: list[Form] = [star] * 16
    forms = [stepped_star(MONTH_SPAN), *numbers(MONTH_SPAN), name, some(name), name_range]
    return one_of(random, *stars, *forms)


def day_of_week(random: Random) -> str:
    def name(random: Random) -> str:
        return random.choice(WEEKDAYS)

    def name_range(random: Random) -> str:
        first, last = sorted(random.sample(range(8), 2))
        return f"{WEEKDAYS[first]}-{WEEKDAYS[last % 7]}" if first else f"SUN-{last}"

    def rules(random: Random) -> str:
        day = random.choice([*range(8), *WEEKDAYS])
        return random.choice([f"{day}L", f"{day}#{random.randint(1, 5)}"])

    stars: list[Form] = [star] * 12
    return one_of(
        random,
        *stars,
        lambda _: "?",
        rules,
        some(rules),
        stepped_star(Span(0, 6)),
        *numbers(WEEKDAY_SPAN),
        name,
        some(name),
        name_range,
    )


def expression(random: Random) -> str:
    """Return an expression. Half of them fire every day, and so on the day of a clock change."""
    time_of_day = f"{minute(random)} {hour(random)}"
    if random.randint(0, 1):
        return f"{time_of_day} {day_of_month(random)} {month(random)} {day_of_week(random)}"
    return f"{time_of_day} * * *"


def every_hour(random: Random) -> str:
    return f"{minute(random)} * * * *"


def six_fields(random: Random) -> str:
    """Return an expression with seconds whose next fire the oracle finds quickly."""
    seconds = one_of(random, value(MINUTES), star, stepped_star(MINUTES), some(value(MINUTES)))
    minutes = one_of(random, value(MINUTES), star, stepped_star(MINUTES), range_of(Span(0, 20)))
    hours = random.choice([str(HOURS.pick(random)), "*", "*/2", "*/3"])
    return f"{seconds} {minutes} {hours} * * *"


# Strategies.


@dataclass(frozen=True, slots=True)
class Case:
    expression: str
    clocks: Clocks
    instant: datetime


def trigger_of(expression: str, clocks: Clocks, *, seconds: bool = False) -> Cron:
    return cron(expression, tz=clocks.tz, gap=clocks.gap, fold=clocks.fold, seconds=seconds)


@st.composite
def clocks(draw: st.DrawFn) -> Clocks:
    gap, fold = draw(st.sampled_from(POLICIES))
    return Clocks(draw(st.sampled_from(ZONES)), gap, fold)


def instants(first: datetime = FIRST, last: datetime = LAST) -> st.SearchStrategy[datetime]:
    """Return instants of whole seconds, milliseconds and microseconds."""
    seconds = st.integers(0, (last - first) // SECOND).map(lambda count: first + count * SECOND)
    microseconds = st.sampled_from([0, 0, 1, 1_000, 500_000, 999_000, 999_999])
    return st.builds(lambda at, us: at + timedelta(microseconds=us), seconds, microseconds)


@st.composite
def instants_near_changes(draw: st.DrawFn, tz: str) -> datetime:
    """Draw instants, two of three within 36 hours of a clock change and some exactly on it."""
    if not changes(tz) or draw(st.integers(0, 2)) == 2:
        return draw(instants())
    change = draw(st.sampled_from(changes(tz)))
    exact = st.sampled_from([0, -1, 1, -1_000, 1_000, -60_000, -3_600_000, 3_600_000])
    shortly_before = st.integers(-6 * 3_600_000, 0)
    anywhere = st.integers(-36 * 3_600_000, 36 * 3_600_000)
    distance_ms = draw(st.one_of(exact, shortly_before, anywhere))
    return max(FIRST, change + timedelta(milliseconds=distance_ms))


@st.composite
def cases(draw: st.DrawFn, write: Callable[[Random], str] = expression) -> Case:
    text = write(draw(st.randoms(use_true_random=False)))
    at = draw(clocks())
    return Case(text, at, draw(instants_near_changes(at.tz)))


@st.composite
def times_of_day(draw: st.DrawFn) -> str:
    hours = st.one_of(st.integers(0, 4), st.integers(0, 23))
    return f"{draw(hours):02}:{draw(st.integers(0, 59)):02}"


def weekly_days(*, least_times: int = 0) -> st.SearchStrategy[dict[str, str | list[str] | None]]:
    times: st.SearchStrategy[str | list[str] | None] = st.one_of(
        times_of_day(), st.lists(times_of_day(), min_size=1, max_size=3, unique=True)
    )
    off: st.SearchStrategy[str | list[str] | None] = st.none()
    on = times if least_times else st.one_of(off, times)
    return st.dictionaries(st.sampled_from(WEEKLY_KEYS), on, min_size=least_times, max_size=7)
