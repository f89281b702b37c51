"""Build a schedule with its events and ledger rows, for tests of `why()`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from duly import cron
from duly.model.index_rows import index_row
from duly.model.jobs import JobId
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import Definition, Schedule, ScheduleId
from duly.model.scopes import user
from duly.operate.why import Answer, Stored, why
from duly.triggers import Trigger
from duly.triggers.instants import to_ms

BERLIN = ZoneInfo("Europe/Berlin")
ID = ScheduleId("sch_1")
DAILY = cron("0 9 * * *", tz="Europe/Berlin")
"""08:00Z in winter, 07:00Z from 29 March on."""
CREATED = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOW = datetime(2026, 3, 12, 12, tzinfo=UTC)
S = OccurrenceState


def ms(text: str) -> int:
    return to_ms(datetime.fromisoformat(text))


def a_schedule(trigger: Trigger = DAILY, state: Any = "active", **fields: Any) -> Schedule:
    stamp = to_ms(CREATED)
    definition = Definition(trigger, "send", **fields)
    return Schedule(ID, "crm", user("ada"), "digest", definition, state, 1, stamp, stamp)


def an_event(kind: Any, at: str, by: str = "ada", **detail: Any) -> ScheduleEvent:
    return ScheduleEvent(ID, kind, ms(at), by, detail)


BORN = an_event("created", "2026-03-02T12:00Z")


def a_ledger_row(state: OccurrenceState, at: str, **fields: Any) -> Occurrence:
    nominal_ms = ms(at)
    values: dict[str, Any] = {
        "until_ms": nominal_ms,
        "count": 1,
        "run_at_ms": nominal_ms,
        "job_id": JobId("job_1"),
    }
    return Occurrence(
        schedule_id=ID,
        nominal_ms=nominal_ms,
        state=state,
        flow="crm",
        scope="user:ada",
        name="digest",
        **values | fields,
    )


def ask(
    at: str | datetime,
    *events: ScheduleEvent,
    schedule: Schedule | None = None,
    row_after: datetime | None = NOW,
    occurrence: Occurrence | None = None,
    is_deleted: bool = False,
) -> Answer:
    schedule = a_schedule() if schedule is None else schedule
    row = None if row_after is None else index_row(schedule, to_ms(row_after))
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    stored = Stored(None if is_deleted else schedule, [BORN, *events], row, occurrence)
    return why(stored, NOW, instant)


def fact(answer: Answer, name: str) -> str:
    return dict(answer.facts)[name]
