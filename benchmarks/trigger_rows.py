"""The rows of the bulk benchmark: many schedules with few rules, due in one planner window.

From a number and a seed it generates triggers with their instants, and the croniter expression of
each row that has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from duly import Trigger, cron, every, weekly

RULES = 500
ZONES = (
    "Africa/Cairo",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Europe/Berlin",
    "UTC",
)
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WINDOW_FROM = datetime(2026, 6, 17, 8, 59, 30, tzinfo=UTC)
"""The window contains a full hour, so that rules that fire then have two answers in it."""
WINDOW_MS = 60_000


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that many rows share; bound to the row if it has H or is an interval."""

    trigger: Trigger
    tz: str = "UTC"
    expression: str | None = None
    """The rule for croniter, if it can express it; an H in it is resolved per row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One due schedule."""

    trigger: Trigger
    instant_ms: int
    rule: Rule


def due_rows(count: int, random: Random) -> list[Row]:
    """Return rows in claim order, that is by instant."""
    rules = _rules(random)
    start_ms = int(WINDOW_FROM.timestamp() * 1000)
    made = []
    for i in range(count):
        rule = random.choice(rules)
        created_at = WINDOW_FROM - timedelta(milliseconds=random.randrange(1, 10**10))
        trigger = rule.trigger.bind(f"tenant-{i}", created_at)
        made.append(Row(trigger, start_ms + random.randrange(WINDOW_MS), rule))
    return sorted(made, key=lambda row: row.instant_ms)


def resolved(row: Row) -> str:
    """Return the row's cron expression with each H replaced by the value its trigger chose.

    H is used for the minute or for minute and hour, so one answer of the trigger gives both.
    """
    expression = row.rule.expression
    answer = row.trigger.next_after(WINDOW_FROM)
    if expression is None or answer is None:
        raise ValueError(f"no cron expression is equivalent to {row.trigger}")
    wall = answer.astimezone(ZoneInfo(row.rule.tz))
    minute, hour, *days = expression.split()
    minute = str(wall.minute) if minute == "H" else minute
    hour = str(wall.hour) if hour == "H" else hour
    return " ".join([minute, hour, *days])


def _rules(random: Random) -> list[Rule]:
    kinds = [_cron] * 12 + [_weekly] * 4 + [_hashed] * 2 + [_every] * 2
    found: dict[Trigger, Rule] = {}
    while len(found) < RULES:
        rule = kinds[len(found) % len(kinds)](random)
        found.setdefault(rule.trigger, rule)
    return list(found.values())


def _cron(random: Random) -> Rule:
    minute, hour = random.randrange(60), random.randrange(24)
    expression = random.choice(
        [
            f"*/{random.choice([1, 2, 5, 10, 15, 20, 30])} * * * *",
            f"{minute} * * * *",
            f"{minute} */{random.choice([2, 3, 4, 6, 12])} * * *",
            f"{minute} {hour} * * *",
            f"{minute} {hour} * * MON-FRI",
            f"{minute} {hour} * * {random.randrange(7)}",
            f"{minute} {hour} {random.randrange(1, 29)} * *",
            f"{minute} {hour} L * *",
            f"{minute} {hour} 1 1,4,7,10 *",
        ]
    )
    tz = random.choice(ZONES)
    return Rule(cron(expression, tz=tz), tz, expression)


def _weekly(random: Random) -> Rule:
    """Return a weekly rule; half of them have one time on all days, which cron can express."""
    days = sorted(random.sample(range(7), random.randrange(1, 7)))
    minute, hour = random.randrange(60), random.randrange(24)
    times = {WEEKDAYS[day]: [f"{hour:02}:{minute:02}"] for day in days}
    expression: str | None = f"{minute} {hour} * * {','.join(str((day + 1) % 7) for day in days)}"
    if random.random() < 0.5:
        times[WEEKDAYS[days[0]]].append(f"{hour:02}:{(minute + 30) % 60:02}")
        expression = None
    tz = random.choice(ZONES)
    return Rule(weekly(times, tz=tz), tz, expression)


def _hashed(random: Random) -> Rule:
    forms = ["H * * * *", "H H * * *", f"H {random.randrange(24)} * * *", "H 9 * * MON-FRI"]
    expression, tz = random.choice(forms), random.choice(ZONES)
    return Rule(cron(expression, tz=tz), tz, expression)


def _every(random: Random) -> Rule:
    """Return an interval rule, anchored at each row's creation, so no two rows share an answer."""
    return Rule(every(minutes=random.randrange(1, 10_081)))
