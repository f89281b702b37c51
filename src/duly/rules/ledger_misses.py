"""Detection of schedules that keep missing their times, from their last ledger rows."""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.ledger import OccurrenceState, keeps_missing
from duly.model.ledger_counts import MissingSchedule
from duly.model.schedules import ScheduleId

ROWS_LOOK = 200
"""Newest ledger rows of a schedule that are searched for decided ones."""


def missing_of(
    schedule_id: ScheduleId, key: tuple[str, str, str], states: Sequence[OccurrenceState]
) -> MissingSchedule | None:
    """Return the schedule if it keeps missing its times; `states` are its last decided ones."""
    if not keeps_missing(states):
        return None
    missed = states.count(OccurrenceState.MISSED)
    skipped = states.count(OccurrenceState.SKIPPED)
    return MissingSchedule(schedule_id, *key, len(states), missed, skipped)
