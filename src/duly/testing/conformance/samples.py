"""Small index rows and schedules for the suites, all of one user unless told otherwise."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from duly.model.documents import Refused
from duly.model.index_rows import Claimed, IndexRow, trigger_text
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import DEFAULT_LIMITS, Definition, Limits, ScheduleId
from duly.stores.port import Store
from duly.testing.conformance.suite import START
from duly.triggers import Trigger, cron, once
from duly.triggers.instants import to_ms

FLOW = "reminders"
SCOPE = "user:ada"
START_MS = to_ms(START)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
MINUTELY = cron("* * * * *")
HOURLY = cron("0 * * * *")
DAILY = cron("0 9 * * *", tz="Europe/Berlin")
ONCE = once(START)


def a_row(
    name: str = "a", trigger: Trigger = MINUTELY, at: datetime = START, **columns: Any
) -> IndexRow:
    """A row whose nominal time is `at`; `columns` replace any other column."""
    bound = trigger.bind(name, START)
    values: dict[str, Any] = {
        "schedule_id": ScheduleId(f"id-{name}"),
        "flow": FLOW,
        "scope": SCOPE,
        "name": name,
        "trigger": trigger_text(bound),
        "nominal_ms": to_ms(at),
        "run_at_ms": to_ms(at) + bound.offset_ms,
        "zone": bound.tz,
        "hand_over": "jobs",
    }
    return IndexRow(**values | columns)


def a_key(name: str = "a", flow: str = FLOW, scope: str = SCOPE) -> ScheduleKey:
    """The key of a row or a schedule."""
    return ScheduleKey(flow, scope, name)


def as_claimed(row: IndexRow, missed: int = 0, version: int = 1) -> Claimed:
    """What a claim of the row gives."""
    return Claimed(
        row.schedule_id,
        row.flow,
        row.scope,
        row.name,
        row.nominal_ms,
        row.run_at_ms,
        missed,
        version,
    )


def a_definition(trigger: Trigger = HOURLY, **fields: Any) -> Definition:
    """A definition whose only interest is its time."""
    return Definition(trigger, "send", **fields)


def a_write(
    name: str = "a",
    definition: Definition | None = None,
    *,
    key: ScheduleKey | None = None,
    id: str | None = None,  # noqa: A002
    limits: Limits = DEFAULT_LIMITS,
    expected_version: int | None = None,
    by: str = "ada",
) -> ScheduleWrite:
    """A write of the hourly schedule, or of another."""
    return ScheduleWrite(
        a_key(name) if key is None else key,
        ScheduleId(f"id-{name}" if id is None else id),
        a_definition() if definition is None else definition,
        limits,
        expected_version,
        by,
    )


async def put(store: Store, *writes: ScheduleWrite) -> list[ScheduleWritten]:
    """Write schedules that must be accepted."""
    answers = await store.put_schedules(writes)
    assert not any(isinstance(answer, Refused) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, ScheduleWritten)]


async def only_row(store: Store) -> IndexRow:
    """The one row that the index has."""
    (row,) = await store.list_rows()
    return row
