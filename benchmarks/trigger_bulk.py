"""Compares next_after_many() on one planner window of rows with croniter row by row.

croniter has no bulk form: an application that advances rows builds an object from each row's
expression, which is what the bar compares with; keeping one object per rule is measured too. Bulk
answers are checked against next_after_ms() before anything is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from time import perf_counter
from zoneinfo import ZoneInfo

from croniter import croniter

from benchmarks.rounds import Contestant, Timing, batches, measure
from benchmarks.trigger_rows import Row, due_rows, resolved
from benchmarks.trigger_single import CRONITER, WARM_UP, Disagreement, changes_near
from duly.triggers import next_after_many

IN_ORDER = "duly, claim order"
SHUFFLED = "duly, shuffled"
KEPT = "croniter, rules kept"

Question = tuple[croniter, datetime]


@dataclass(frozen=True, slots=True)
class BulkSize:
    """Numbers of rows: in total, checked against next_after_ms(), and given to croniter."""

    rows: int
    checked: int
    sampled: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Bulk:
    """Figures per row, by contestant."""

    timings: dict[str, Timing]
    first_us: float
    """Time of the first run, in which rules still fill their tables of days."""
    cores: int
    """Distinct rules after H is resolved, which is the number of answers to compute."""
    disagreements: int
    """Sampled rows away from clock changes for which croniter's answer differs."""

    def ratio(self, peer: str = CRONITER) -> float:
        """Return the peer's time / ours in claim order."""
        return self.timings[peer].minimum_us / self.timings[IN_ORDER].minimum_us


def measure_bulk(size: BulkSize, batch: int, seed: int) -> Bulk:
    """Measure; raise Disagreement if the bulk form and the single one differ."""
    random = Random(seed)
    rows = due_rows(size.rows, random)
    started = perf_counter()
    answers = _ask_ours(rows)()
    first_us = (perf_counter() - started) * 1e6 / size.rows
    for row, answer in random.sample(list(zip(rows, answers, strict=True)), size.checked):
        if answer != row.trigger.next_after_ms(row.instant_ms):
            raise Disagreement(f"the bulk form and next_after_ms() differ: {row}")
    sayable = [i for i, row in enumerate(rows) if row.rule.expression is not None]
    sample = sorted(random.sample(sayable, size.sampled))
    asked = [rows[i] for i in sample]
    questions = _questions(asked)
    texts = [(resolved(row), instant) for row, (_, instant) in zip(asked, questions, strict=True)]
    contestants = [
        Contestant(IN_ORDER, [_ask_ours(rows)], size.rows, _ask_ours(rows[:WARM_UP])),
        Contestant(
            SHUFFLED,
            [_ask_ours(random.sample(rows, size.rows))],
            size.rows,
            warm_up=_ask_ours(rows[:WARM_UP]),
        ),
        Contestant(
            CRONITER,
            [partial(_ask_each, some) for some in batches(texts, batch)],
            size.sampled,
            warm_up=partial(_ask_each, texts[:WARM_UP]),
        ),
        Contestant(
            KEPT,
            [partial(_ask_croniter, some) for some in batches(questions, batch)],
            size.sampled,
            warm_up=partial(_ask_croniter, questions[:WARM_UP]),
        ),
    ]
    return Bulk(
        timings=measure(contestants, size.rounds),
        first_us=first_us,
        cores=len({id(row.trigger.core) for row in rows if row.trigger.core is not None}),
        disagreements=_disagreements(asked, [answers[i] for i in sample]),
    )


def _ask_ours(rows: Sequence[Row]) -> partial[list[int | None]]:
    triggers = [row.trigger for row in rows]
    return partial(next_after_many, triggers, [row.instant_ms for row in rows])


def _questions(rows: Sequence[Row]) -> list[Question]:
    """Return for each row the croniter object of its rule and its instant in local time."""
    objects: dict[tuple[str, str], croniter] = {}
    questions = []
    for row in rows:
        expression, tz = resolved(row), ZoneInfo(row.rule.tz)
        instant = datetime.fromtimestamp(row.instant_ms / 1000, UTC).astimezone(tz)
        key = (expression, tz.key)
        if key not in objects:
            objects[key] = croniter(expression, instant)
        questions.append((objects[key], instant))
    return questions


def _ask_croniter(questions: Sequence[Question]) -> list[datetime]:
    return [each.get_next(datetime, instant) for each, instant in questions]


def _ask_each(rows: Sequence[tuple[str, datetime]]) -> list[datetime]:
    return [croniter(expression, instant).get_next(datetime) for expression, instant in rows]


def _disagreements(rows: Sequence[Row], ours: Sequence[int | None]) -> int:
    count = 0
    for row, answer, theirs in zip(rows, ours, _ask_croniter(_questions(rows)), strict=True):
        is_calm = not changes_near(ZoneInfo(row.rule.tz), theirs)
        count += is_calm and round(theirs.timestamp() * 1000) != answer
    return count
