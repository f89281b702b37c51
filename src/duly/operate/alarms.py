"""Station 8: alarms that can be asked for every few seconds, however much is stored. Pure.

Takes what can be known of the index at once; gives findings as `health` does, which counts
everything and is asked less often. `/readyz`, the health page and the metrics go by these.
"""

from __future__ import annotations

from duly.errors import DulyError
from duly.model.index_rows import IndexRow, trigger_of
from duly.model.summaries import Glance
from duly.operate.health import Finding

PERIODS = 2
"""A row that has been due for more than so many of its own periods was missed."""
MIN_OVERDUE_MS = 60_000
LAST_TIME_MS = 3_600_000
"""The last time of a rule has no period; it is missed after so long."""


def alarms(glance: Glance) -> tuple[Finding, ...]:
    """Whether anything will fire, and whether what should have fired did."""
    return _silent(glance), _missed(glance)


def _silent(glance: Glance) -> Finding:
    if glance.is_silent:
        text = "schedules are active and the index is empty: nothing will fire"
        return Finding("silent index", "bad", f"{text}; run duly doctor --repair")
    return Finding("silent index", "ok", "rows wait" if glance.has_rows else "nothing is active")


def _missed(glance: Glance) -> Finding:
    late = [row for row in glance.oldest if is_missed(row, glance.now_ms)]
    if not late:
        return Finding("missed runs", "ok", f"{glance.due} rows are due, none for long")
    first = f"{late[0].flow}/{late[0].scope}/{late[0].name}"
    text = f"{len(late)} of {len(glance.oldest)} due rows wait for over {PERIODS} periods"
    runner = "tick" if late[0].hand_over == "http" else "planner"
    return Finding("missed runs", "bad", f"{text}, first {first}; see that a {runner} runs")


def is_missed(row: IndexRow, now_ms: int) -> bool:
    """Whether a due row has waited for longer than twice the time to its next fire."""
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
