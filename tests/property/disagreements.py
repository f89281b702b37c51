"""Reasons for which croniter and cronsim give other answers than Duly, and why Duly's are right.

One row per reason. A row may excuse a disagreement only when its predicate holds for that very
case; that the brute-force oracle sides with us is asked separately, in test_differential.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from zoneinfo import ZoneInfo

from tests.property.oracle import LIMITS, SPANS, Fields, can_match, number, split
from tests.property.strategies import changes, near_change, shift_at


@dataclass(frozen=True, slots=True)
class Answer:
    """The first few fires, or a refusal of the expression."""

    fires: tuple[datetime, ...] = ()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Disagreement:
    library: str
    expression: str
    tz: str
    base: datetime
    ours: Answer
    theirs: Answer

    @property
    def fields(self) -> Fields:
        return split(self.expression)

    @property
    def first_difference(self) -> tuple[datetime | None, datetime | None]:
        """Return our fire and theirs at the first position where they differ."""
        pairs = zip_longest(self.ours.fires, self.theirs.fires)
        return next(((ours, theirs) for ours, theirs in pairs if ours != theirs), (None, None))

    def within(self, distance: timedelta) -> bool:
        """Return whether the first difference is within a distance of a clock change."""
        found = [fire for fire in self.first_difference if fire]
        return any(near_change(self.tz, fire, distance) for fire in found)


@dataclass(frozen=True, slots=True)
class Reason:
    name: str
    library: str
    why: str
    applies: Callable[[Disagreement], bool]


def classify(case: Disagreement) -> Reason | None:
    rows = (row for row in REASONS if row.library == case.library and row.applies(case))
    return next(rows, None)


# Predicates. Those about clock changes look at the answers, the others at the text.

AT_THE_CHANGE = timedelta(hours=3)
A_DAY_AND_A_HALF = timedelta(hours=36)


def only_they_refuse(case: Disagreement) -> bool:
    return case.theirs.refused and not case.ours.refused


def only_we_refuse(case: Disagreement) -> bool:
    return case.ours.refused and not case.theirs.refused


def both_answer(case: Disagreement) -> bool:
    return not case.ours.refused and not case.theirs.refused


def starred(text: str) -> bool:
    return text[0] in "*?"


def parts(text: str) -> list[str]:
    return text.split(",")


def ranges(case: Disagreement) -> list[tuple[int, int]]:
    """Return both ends of every range in which both are written out."""
    texts = (part for name in LIMITS for part in parts(getattr(case.fields, name)))
    found = (re.fullmatch(r"(\w+)-(\w+)(/\d+)?", text) for text in texts)
    return [(number(match[1]), number(match[2])) for match in found if match]


def has_reversed_range(case: Disagreement) -> bool:
    return any(first > last for first, last in ranges(case))


def has_oversized_step(case: Disagreement) -> bool:
    return any(
        int(step) > SPANS[name]
        for name in LIMITS
        for step in re.findall(r"/(\d+)", getattr(case.fields, name))
    )


def has_range_of_one(case: Disagreement) -> bool:
    """Return whether a range has one value: `5-5`, or `59/7`, which is `59-59/7`."""
    last_values = {name: SPANS[name] - 1 + LIMITS[name][0] for name in LIMITS}
    return any(first == last for first, last in ranges(case)) or any(
        re.fullmatch(rf"{last}/\d+", part)
        for name, last in last_values.items()
        for part in parts(getattr(case.fields, name))
    )


def both_days_restricted(case: Disagreement) -> bool:
    return not starred(case.fields.day) and not starred(case.fields.weekday)


def stepped_star_with_other_day(case: Disagreement) -> bool:
    day, weekday = case.fields.day, case.fields.weekday
    return any(
        one.startswith("*/") and other not in ("*", "?")
        for one, other in ((day, weekday), (weekday, day))
    )


def second_reading(case: Disagreement) -> bool:
    """Return whether their fire is the second instant of a wall time that exists twice."""
    theirs = case.first_difference[1]
    if theirs is None or starred(case.fields.hour):
        return False
    local = theirs.astimezone(ZoneInfo(case.tz))
    return local.fold == 1


def half_hour_change_before(case: Disagreement) -> bool:
    """Return whether clocks changed by part of an hour in the day and a half before."""
    found = [fire for fire in case.first_difference if fire]
    return any(
        shift_at(change, case.tz) % timedelta(hours=1)
        and any(timedelta(0) <= fire - change <= A_DAY_AND_A_HALF for fire in found)
        for change in changes(case.tz)
    )


def hour_rules_differ(case: Disagreement) -> bool:
    return both_answer(case) and case.within(AT_THE_CHANGE)


REASONS: list[Reason] = [
    Reason(
        "croniter: 5L",
        "croniter",
        "`5L` is the last Friday in Quartz and cronsim; croniter reads only its own `L5`.",
        lambda case: only_they_refuse(case) and bool(re.search(r"\wL", case.fields.weekday)),
    ),
    Reason(
        "croniter: LW",
        "croniter",
        "`LW` is the last weekday of the month in Quartz and cronsim; croniter does not have it.",
        lambda case: only_they_refuse(case) and "LW" in parts(case.fields.day),
    ),
    Reason(
        "croniter: W in a list",
        "croniter",
        "A list is a union of its parts, so nothing forbids `15W` in one; croniter does.",
        lambda case: only_they_refuse(case) and bool(re.search(r",\d+W|W,", case.fields.day)),
    ),
    Reason(
        "croniter: # in a list",
        "croniter",
        "A list is a union of its parts, so `1#2,5` has a meaning; croniter refuses the mixture.",
        lambda case: only_they_refuse(case) and bool(re.search(r"#.*,|,.*#", case.fields.weekday)),
    ),
    Reason(
        "croniter: W or # and the other day field",
        "croniter",
        "Two restricted day fields are joined by or; croniter forgets this for `15W` and `1#2`.",
        lambda case: (
            both_answer(case)
            and both_days_restricted(case)
            and bool(re.search(r"\dW", case.fields.day) or "#" in case.fields.weekday)
        ),
    ),
    Reason(
        "croniter: a date that never comes",
        "croniter",
        "With or, 30 February takes nothing from the Mondays; croniter then finds no date at all.",
        lambda case: both_answer(case) and both_days_restricted(case) and not case.theirs.fires,
    ),
    Reason(
        "croniter: 31W in a short month",
        "croniter",
        "A month without a 31st has no weekday nearest to it; croniter takes its last day.",
        lambda case: both_answer(case) and bool(re.search(r"(29|30|31)W", case.fields.day)),
    ),
    Reason(
        "croniter: a range of one value",
        "croniter",
        "`5-5`, and `59/7` which is `59-59/7`, name one value; croniter takes the whole field.",
        lambda case: both_answer(case) and has_range_of_one(case),
    ),
    Reason(
        "croniter: stepped star in a day field",
        "croniter",
        "Vixie cron asks whether a day field begins with a star; croniter counts `*/2` as a list.",
        lambda case: both_answer(case) and stepped_star_with_other_day(case),
    ),
    Reason(
        "croniter: reversed range",
        "croniter",
        "`10-5` is more often a slip than a wish, and two ranges say it plainly; croniter wraps.",
        lambda case: only_we_refuse(case) and has_reversed_range(case),
    ),
    Reason(
        "croniter: step longer than the field",
        "croniter",
        "`*/90` minutes cannot mean every 90 minutes; croniter accepts it as `0`.",
        lambda case: only_we_refuse(case) and has_oversized_step(case),
    ),
    Reason(
        "croniter: never matches",
        "croniter",
        "A rule that can never fire is a mistake to report at once; croniter fails when asked.",
        lambda case: only_we_refuse(case) and not can_match(case.expression),
    ),
    Reason(
        "croniter: twice in the fold",
        "croniter",
        "A job at a fixed hour is wanted once a day; croniter runs it at both readings.",
        lambda case: both_answer(case) and second_reading(case),
    ),
    Reason(
        "croniter: stepped hours in the gap",
        "croniter",
        "Hours that begin with a star follow the real clock; croniter treats `*/2` as fixed hours.",
        lambda case: hour_rules_differ(case) and case.fields.hour.startswith("*/"),
    ),
    Reason(
        "croniter: all hours written out",
        "croniter",
        "`0-23` names hours, so a lost hour is made up; croniter takes it for a star.",
        lambda case: hour_rules_differ(case) and case.fields.hour == "0-23",
    ),
    Reason(
        "croniter: starred hour in a gap of half an hour",
        "croniter",
        "No wall time of a gap is real, so a starred hour skips it; croniter makes up a fire.",
        lambda case: (
            both_answer(case)
            and case.fields.hour == "*"
            and case.first_difference[1] in changes(case.tz)
        ),
    ),
    Reason(
        "croniter: seconds in the gap",
        "croniter",
        "The first instant after a gap is its end; croniter looks at whole minutes from the rule.",
        lambda case: hour_rules_differ(case) and case.fields.second != "0",
    ),
    Reason(
        "cronsim: W",
        "cronsim",
        "`15W` is Quartz's nearest weekday; cronsim does not have it.",
        lambda case: only_they_refuse(case) and bool(re.search(r"\dW", case.fields.day)),
    ),
    Reason(
        "cronsim: ?",
        "cronsim",
        "`?` is how Quartz leaves a day field open; cronsim does not have it.",
        lambda case: only_they_refuse(case) and "?" in (case.fields.day, case.fields.weekday),
    ),
    Reason(
        "cronsim: macros",
        "cronsim",
        "`@daily` and friends stand in every crontab manual; cronsim does not have them.",
        lambda case: only_they_refuse(case) and case.expression.startswith("@"),
    ),
    Reason(
        "cronsim: FRIL",
        "cronsim",
        "A name stands wherever its number may; cronsim wants `5L`.",
        lambda case: only_they_refuse(case) and bool(re.search(r"[A-Z]L", case.fields.weekday)),
    ),
    Reason(
        "cronsim: SAT-SUN",
        "cronsim",
        "Sunday is 7 as well as 0, so `SAT-SUN` is `6-7`; cronsim sees only 0.",
        lambda case: only_they_refuse(case) and "-SUN" in case.expression,
    ),
    Reason(
        "cronsim: open range of weekdays",
        "cronsim",
        "A week has seven days, 0 to 6, and `5/2` ends with it; cronsim counts Sunday again as 7.",
        lambda case: both_answer(case) and bool(re.search(r"\b\d/", case.fields.weekday)),
    ),
    Reason(
        "cronsim: step longer than the field",
        "cronsim",
        "`*/90` minutes cannot mean every 90 minutes; cronsim accepts it as `0`.",
        lambda case: only_we_refuse(case) and has_oversized_step(case),
    ),
    Reason(
        "cronsim: never matches",
        "cronsim",
        "A rule that can never fire is a mistake to report at once; cronsim searches 50 years.",
        lambda case: only_we_refuse(case) and not can_match(case.expression),
    ),
    Reason(
        "cronsim: starred minute at a fixed hour",
        "cronsim",
        "The hour decides whether a rule follows the wall; Debian, so cronsim, asks the minute.",
        lambda case: (
            hour_rules_differ(case)
            and case.fields.minute.startswith("*")
            and not starred(case.fields.hour)
        ),
    ),
    Reason(
        "cronsim: no rules with seconds",
        "cronsim",
        "A seconds field does not change what a fixed hour means; cronsim drops its rules there.",
        lambda case: (
            hour_rules_differ(case)
            and len(case.expression.split()) == 6
            and not starred(case.fields.hour)
        ),
    ),
    Reason(
        "cronsim: answers the past",
        "cronsim",
        "The answer is strictly after the question; cronsim forgets which reading it stands in.",
        lambda case: any(fire <= case.base for fire in case.theirs.fires),
    ),
    Reason(
        "cronsim: hours after a change by half an hour",
        "cronsim",
        "Hours begin at minute 0; cronsim steps by 3600 s and stays half an hour off.",
        lambda case: both_answer(case) and half_hour_change_before(case),
    ),
    Reason(
        "croniter by default: seconds last",
        "croniter by default",
        "Seconds come first, as in Quartz, Spring and cronsim; croniter puts them last.",
        lambda case: len(case.expression.split()) == 6,
    ),
]
