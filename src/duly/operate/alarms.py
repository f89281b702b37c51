"""Alarms cheap enough to check every few seconds, however much is stored. Pure.

They are findings like those of `health`, from the due summary alone. `/readyz`, the health page
and the metrics use them.
"""

from __future__ import annotations

from duly.errors import DulyError
from duly.model.index_rows import IndexRow, trigger_of
from duly.model.summaries import DueSummary
from duly.operate.health import Finding

PERIODS = 2
"""A row due for more than this many of its own periods was missed."""
MIN_OVERDUE_MS = 60_000
LAST_TIME_MS = 3_600_000
"""Limit for the last time of a rule, which has no period."""


def alarms(summary: DueSummary) -> tuple[Finding, ...]:
    """Return two findings: a silent index, and missed runs."""
    return _silent(summary), _missed(summary)


def _silent(summary: DueSummary) -> Finding:
    if summary.is_silent:
        text = "schedules are active and the index is empty: nothing will fire"
        return Finding("silent index", "bad", f"{text}; run duly doctor --repair")
    return Finding("silent index", "ok", "rows wait" if summary.has_rows else "nothing is active")


def _missed(summary: DueSummary) -> Finding:
    late = [row for row in summary.oldest if is_missed(row, summary.now_ms)]
    if not late:
        return Finding("missed runs", "ok", f"{summary.due} rows are due, none for long")
    first = f"{late[0].flow}/{late[0].scope}/{late[0].name}"
    text = f"{len(late)} of {len(summary.oldest)} due rows wait for over {PERIODS} periods"
    runner = "tick" if late[0].hand_over == "http" else "planner"
    return Finding("missed runs", "bad", f"{text}, first {first}; see that a {runner} runs")


def is_missed(row: IndexRow, now_ms: int) -> bool:
    """Return whether a due row has waited for more than PERIODS of its periods."""
    waited_ms = now_ms - row.run_at_ms
    if waited_ms < MIN_OVERDUE_MS:
        return False
    try:
        following = trigger_of(row.trigger).next_after_ms(row.nominal_ms)
    except DulyError:
        return True
    if following is None:
        return waited_ms > LAST_TIME_MS
    return waited_ms > PERIODS * (following - row.nominal_ms)
