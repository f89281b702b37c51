"""The rows of the index benchmark: a backlog of due schedules, and what a claim makes of them.

Takes a number and a seed; gives index rows in the order they were created, which is not the order
in which they are due. Rules are those of the trigger benchmark: 500, shared by many rows each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.trigger_rows import WINDOW_FROM, WINDOW_MS, due_rows
from duly.occurrences import IndexRow, trigger_text
from duly.schedules import ScheduleId
from duly.stores.sql.index import row_values

NOW_MS = int(WINDOW_FROM.timestamp() * 1000) + WINDOW_MS
"""When claims happen: all rows of the window are due, the oldest for a minute."""

Move = tuple[str, int, int, int | None]
"""Where a row goes: its id, next nominal time, next run time, runs left."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Due rows as column values."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    texts: tuple[str, ...]
    """Their different triggers: rows with H or every have one each, others share."""
    expressions: tuple[tuple[str, str], ...]
    """What cron can say among the rules: expression and zone."""


def backlog(count: int, seed: int) -> Backlog:
    random = Random(seed)
    due = due_rows(count, random)
    random.shuffle(due)
    rows = [
        IndexRow(
            schedule_id=ScheduleId(row_id(i)),
            flow="report",
            scope=f"user:{i}",
            name="daily",
            trigger=trigger_text(each.trigger),
            nominal_ms=each.instant_ms,
            run_at_ms=each.instant_ms,
            zone=each.rule.tz,
        )
        for i, each in enumerate(due)
    ]
    values = [row_values(row) for row in rows]
    return Backlog(
        columns=tuple(values[0]),
        rows=[tuple(each.values()) for each in values],
        texts=tuple(dict.fromkeys(row.trigger for row in rows)),
        expressions=_expressions([(each.rule.expression, each.rule.tz) for each in due]),
    )


def row_id(number: int) -> str:
    """As long as a real one, and in the order of creation like a real one."""
    return f"sch_{number:032x}"


def _expressions(rules: Sequence[tuple[str | None, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(
        dict.fromkeys(
            (expression, tz)
            for expression, tz in rules
            if expression is not None and "H" not in expression and "L" not in expression
        )
    )
