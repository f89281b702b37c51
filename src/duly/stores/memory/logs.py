"""Access to the logs of the engine's port in the memory store's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from duly.engine.kinds import AUDIT, JOB_EVENTS, SCHEDULE_EVENTS
from duly.engine.transaction import Key, Log
from duly.model.events import JobEvent
from duly.model.jobs import JobId
from duly.model.schedule_writes import ScheduleEvent
from duly.stores.memory.tables import Tables

T = TypeVar("T")
Edits = Mapping[Key, Any]
"""New values of facts by number; None: removed."""


class LogKeeping(NamedTuple):
    """Access to one log in the tables."""

    read: Callable[[Tables], Iterable[Any]]
    append: Callable[[Tables, Any], None]
    edit: Callable[[Tables, Edits], None]


def _append_event(tables: Tables, event: ScheduleEvent) -> None:
    tables.last_event += 1
    tables.events.append(replace(event, seq=tables.last_event))


def _edit_events(tables: Tables, edits: Edits) -> None:
    tables.events = _edited(SCHEDULE_EVENTS, tables.events, edits)


def _append_audit(_tables: Tables, _entry: object) -> None:
    raise AssertionError("audit entries are appended by append_audit(), not by a transaction")


def _edit_audit(tables: Tables, edits: Edits) -> None:
    tables.audit = _edited(AUDIT, tables.audit, edits)


def _all_job_events(tables: Tables) -> Iterable[JobEvent]:
    return (event for events in tables.job_events.values() for event in events)


def _append_job_event(tables: Tables, event: JobEvent) -> None:
    # Events of a job removed in the same transaction are dropped with it.
    if event.job_id in tables.job_events:
        tables.job_events[event.job_id] += (event,)


def _edit_job_events(tables: Tables, edits: Edits) -> None:
    for job_id in {JobId(str(number[0])) for number in edits}:
        events = tables.job_events.get(job_id)
        if events is not None:
            tables.job_events[job_id] = tuple(_edited(JOB_EVENTS, events, edits))


def _edited(log: Log[T], facts: Sequence[T], edits: Edits) -> list[T]:
    found = (edits.get(log.number(fact), fact) for fact in facts)
    return [fact for fact in found if fact is not None]


LOGS: dict[Log[Any], LogKeeping] = {
    SCHEDULE_EVENTS: LogKeeping(lambda tables: tables.events, _append_event, _edit_events),
    JOB_EVENTS: LogKeeping(_all_job_events, _append_job_event, _edit_job_events),
    AUDIT: LogKeeping(lambda tables: tables.audit, _append_audit, _edit_audit),
}
