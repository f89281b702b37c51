"""Pausing a schedule whose last runs all failed, out of other verbs."""

from __future__ import annotations

import msgspec

from duly.ledger import OccurrenceState
from duly.schedules import Schedule, ScheduleId
from duly.store import ScheduleKey, ScheduleWrite, ScheduleWritten, Store

_ENDED = (OccurrenceState.SUCCEEDED, OccurrenceState.FAILED)


async def pause_failing(store: Store, schedule_id: ScheduleId) -> Schedule | None:
    """Pause it, if it is enabled and as many runs as its policy says failed one after another."""
    found = await store.find_schedule(schedule_id)
    if found is None or not found.definition.enabled:
        return None
    most = found.definition.policies.pause_after_failures
    rows = [row for row in await store.list_occurrences(schedule_id) if row.state in _ENDED]
    if most is None or len(rows) < most:
        return None
    if any(row.state is not OccurrenceState.FAILED for row in rows[:most]):
        return None
    note = f"paused after {most} failures in a row"
    definition = msgspec.structs.replace(found.definition, enabled=False, note=note)
    key = ScheduleKey(found.flow, str(found.scope), found.name)
    write = ScheduleWrite(key, found.id, definition, expected_version=found.version, by="duly")
    (answer,) = await store.put_schedules([write])
    return answer.schedule if isinstance(answer, ScheduleWritten) else None
