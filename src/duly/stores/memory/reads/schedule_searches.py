"""Schedule searches of the memory store, across all scopes."""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.index_rows import IndexRow
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Schedule, ScheduleId
from duly.rules.checks import check_limit
from duly.stores.memory.tables import Tables


def search(
    tables: Tables, which: ScheduleFilter, after: ScheduleKey | None, limit: int
) -> list[Schedule]:
    """Return one page of schedules by flow, name and scope, after a key."""
    check_limit(limit)
    place = ("", "") if after is None else (f"{after.flow}/{after.name}", after.scope)
    found = [each for each in tables.schedules() if _is_wanted(each, which)]
    return [each for each in sorted(found, key=_place) if _place(each) > place][:limit]


def find_rows(tables: Tables, ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
    """Return the index rows of the schedules that have a next time, by id."""
    live = (row for key, row in tables.rows.items() if key not in tables.errors)
    return {row.schedule_id: row for row in live if row.schedule_id in ids}


def _place(schedule: Schedule) -> tuple[str, str]:
    return f"{schedule.flow}/{schedule.name}", str(schedule.scope)


def _is_wanted(schedule: Schedule, which: ScheduleFilter) -> bool:
    return (
        which.flow in (None, schedule.flow)
        and which.scope in (None, str(schedule.scope))
        and which.state in (None, schedule.state)
        and which.hand_over in (None, schedule.definition.hand_over)
        and schedule.name.startswith(which.name_prefix)
    )
