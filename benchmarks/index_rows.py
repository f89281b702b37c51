"""The rows of the index benchmark: a backlog of due schedules.

From a number and a seed it generates index rows in order of creation, which is not the order in
which they are due. The rules are the 500 of the trigger benchmark, each shared by many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.trigger_rows import WINDOW_FROM, WINDOW_MS, due_rows
from duly.model.index_rows import IndexRow, trigger_text
from duly.model.schedules import ScheduleId
from duly.stores.sql.rows.index_rows import index_values, rule_values

NOW_MS = int(WINDOW_FROM.timestamp() * 1000) + WINDOW_MS
"""The time of the claims: all rows of the window are due, the oldest for a minute."""

Move = tuple[int, int, int, int | None]
"""The next state of a row: its number, next nominal time, next run time, runs left."""


@dataclass(frozen=True, slots=True)
class Part:
    """Column values for one of the two tables of index rows."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Backlog:
    """Due rows, numbered from 0, as parts in the order of insertion."""

    parts: tuple[Part, ...]
    texts: tuple[str, ...]
    """Distinct triggers: rows with H or every have their own, others share."""
    expressions: tuple[tuple[str, str], ...]
    """The rules that cron can express, as expression and zone."""

    def __len__(self) -> int:
        return len(self.parts[0].rows)


def backlog(count: int, seed: int) -> Backlog:
    random = Random(seed)
    due = due_rows(count, random)
    random.shuffle(due)
    rows = [
        IndexRow(
            schedule_id=ScheduleId(schedule_id(i)),
            flow="report",
            scope=f"user:{i}",
            name="daily",
            trigger=trigger_text(each.trigger),
            nominal_ms=each.instant_ms,
            run_at_ms=each.instant_ms,
            zone=each.rule.tz,
            hand_over="jobs",
        )
        for i, each in enumerate(due)
    ]
    return Backlog(
        parts=(
            _part("duly_schedule_rules", map(rule_values, rows)),
            _part("duly_schedule_index", map(index_values, rows)),
        ),
        texts=tuple(dict.fromkeys(row.trigger for row in rows)),
        expressions=_expressions([(each.rule.expression, each.rule.tz) for each in due]),
    )


def _part(table: str, values: Iterable[dict[str, Any]]) -> Part:
    numbered = [{"row_id": i} | each for i, each in enumerate(values)]
    return Part(table, tuple(numbered[0]), [tuple(each.values()) for each in numbered])


def schedule_id(number: int) -> str:
    """Return an id as long as a real one, ordered by creation like a real one."""
    return f"sch_{number:032x}"


def _expressions(rules: Sequence[tuple[str | None, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(
        dict.fromkeys(
            (expression, tz)
            for expression, tz in rules
            if expression is not None and "H" not in expression and "L" not in expression
        )
    )
