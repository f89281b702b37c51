"""Generate the tables of state transitions."""

from __future__ import annotations

from collections.abc import Iterable

from duly.model.jobs import TRANSITIONS, JobState
from duly.model.ledger import LEDGER_TRANSITIONS, OccurrenceState, follow
from tools.reference.markdown import code, table, words


def ledger() -> str:
    """Return the transitions of occurrences."""
    return _transitions(LEDGER_TRANSITIONS.items(), OccurrenceState)


def jobs() -> str:
    """Return the transitions of jobs."""
    return _transitions(TRANSITIONS.items(), JobState)


def follows() -> str:
    """Return the state changes of an occurrence when its job changes state."""
    rows = []
    for job in JobState:
        moves = [(state, follow(state, job)) for state in OccurrenceState]
        shown = [f"`{state}` → `{target}`" for state, target in moves if state != target]
        if shown:
            rows.append((code(job), ", ".join(shown)))
    return table(("the job goes to", "its occurrence goes"), rows)


def _transitions(allowed: Iterable[tuple[str | None, Iterable[str]]], order: Iterable[str]) -> str:
    listed = list(order)
    rows = []
    for state, targets in allowed:
        found = set(targets)
        follow_on = words(each for each in listed if each in found)
        rows.append((code(state) if state else "no row yet", follow_on or "nothing"))
    return table(("from", "to"), rows)
