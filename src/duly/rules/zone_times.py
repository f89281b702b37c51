"""Next times of rows by the time zone rules of this process."""

from __future__ import annotations

from typing import NamedTuple

from duly.errors import InvalidInput
from duly.model.index_rows import trigger_of
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import ScheduleId
from duly.model.upkeep import ZoneMove
from duly.triggers import LocalOnce
from duly.triggers.instants import to_ms


class Zoned(NamedTuple):
    """A row with a next time, and the last nominal time of its schedule in the ledger."""

    schedule_id: ScheduleId
    trigger: str
    zone: str
    nominal_ms: int
    run_at_ms: int
    last_ms: int | None


def right_time(row: Zoned, now_ms: int) -> int | None:
    """Return the nominal time that the row should have; None: there is none.

    A row that is due or cannot be evaluated keeps its time; the claim fires or quarantines it.
    """
    if row.run_at_ms <= now_ms:
        return row.nominal_ms
    after_ms = now_ms - (row.run_at_ms - row.nominal_ms)
    if row.last_ms is not None:
        after_ms = max(after_ms, row.last_ms)
    try:
        trigger = trigger_of(row.trigger)
        if isinstance(trigger, LocalOnce) and trigger.at is not None:
            # If the new rules move it before now, it is late: there is no later time.
            after_ms = min(after_ms, to_ms(trigger.at) - 1) if row.last_ms is None else after_ms
        return trigger.next_after_ms(after_ms)
    except InvalidInput:
        return row.nominal_ms


def move_event(move: ZoneMove, now_ms: int) -> ScheduleEvent:
    """Return the event of a move."""
    detail = {"tz": {"old_ms": move.old_ms, "new_ms": move.new_ms}}
    return ScheduleEvent(move.schedule_id, "changed", now_ms, "system", detail)
