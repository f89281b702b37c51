"""Small sample index rows and schedules, by default of one user."""

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
    """Return a row with the nominal time `at`; `columns` override the defaults."""
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
    """Return the key of a row or schedule."""
    return ScheduleKey(flow, scope, name)


def as_claimed(row: IndexRow, missed: int = 0, version: int = 1) -> Claimed:
    """Return the expected claim of a row."""
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
    """Return a minimal definition; `fields` override the defaults."""
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
    """Return a write of a schedule, by default an hourly one."""
    return ScheduleWrite(
        a_key(name) if key is None else key,
        ScheduleId(f"id-{name}" if id is None else id),
        a_definition() if definition is None else definition,
        limits,
        expected_version,
        by,
    )


async def put(store: Store, *writes: ScheduleWrite) -> list[ScheduleWritten]:
    """Write schedules that must be accepted; return the answers."""
    answers = await store.put_schedules(writes)
    assert not any(isinstance(answer, Refused) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, ScheduleWritten)]


async def only_row(store: Store) -> IndexRow:
    """Return the only row in the index."""
    (row,) = await store.list_rows()
    return row
