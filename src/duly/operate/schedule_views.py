"""Operator views of schedules: definitions without inputs, ledger rows and events. Pure.

Also the text form of a schedule's key, `flow/scope/name`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from duly.errors import InvalidInput
from duly.model.index_rows import IndexRow
from duly.model.jobs import JobId
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey
from duly.model.schedules import HandOver, Schedule, ScheduleId, ScheduleState
from duly.model.scopes import Scope, check_flow
from duly.operate.coverage import Coverage
from duly.operate.redaction.values import preview, scrub, secret_values
from duly.rules.runs import known_runs, runs_left
from duly.triggers import ExplainedTime
from duly.triggers.instants import from_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule without its input."""

    id: ScheduleId
    key: str
    """`flow/scope/name`, as parse_key() reads it."""
    flow: str
    scope: str
    name: str
    action: str
    state: ScheduleState
    words: str
    zone: str
    trigger: dict[str, Any]
    next_at: datetime | None
    """Its next nominal time; None: it has no index row."""
    next_run_at: datetime | None
    runs_left: int | None
    max_runs: int | None
    delete_after_completion: bool
    hand_over: HandOver
    policies: dict[str, Any]
    """Policies that differ from the defaults."""
    description: str
    note: str
    error: str | None
    input_preview: str
    """JSON text; redacted, and truncated if long."""
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleEventView:
    """One event of a schedule."""

    at: datetime
    kind: str
    by: str
    note: str | None
    trigger: dict[str, Any] | None
    """The rule that the event replaced; None: it replaced none."""
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceView:
    """A row of the ledger."""

    nominal_at: datetime
    until_at: datetime
    """The last time of a range row; for a single time, that time."""
    times: int
    run_at: datetime
    state: OccurrenceState
    job_id: JobId | None
    reason: str | None
    fired_at: datetime | None
    ended_at: datetime | None
    late_ms: int | None


@dataclass(frozen=True, slots=True)
class ScheduleDetail:
    """A schedule with next times, events, ledger rows and coverage."""

    schedule: ScheduleView
    next_times: tuple[ExplainedTime, ...]
    events: list[ScheduleEventView]
    """Oldest first."""
    occurrences: list[OccurrenceView]
    """Newest first."""
    coverage: Coverage


def key_text(key: ScheduleKey) -> str:
    """Return a key as text; a slash inside a part is written %2F."""
    parts = (key.flow, key.scope, key.name)
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def parse_key(text: str) -> ScheduleKey | ScheduleId:
    """Parse the text of a key; `flow/name` has the scope system, text without a slash is an id."""
    parts = [unquote(part) for part in text.split("/")]
    if len(parts) == 1 and text:
        return ScheduleId(text)
    if len(parts) == 2:
        parts.insert(1, "system")
    if len(parts) != 3 or not all(parts):
        raise InvalidInput(
            f"schedule {text!r}; write flow/scope/name as in crm/user:ada/digest (a slash inside "
            "a part as %2F), flow/name for the system's, or the id"
        )
    flow, scope, name = parts
    return ScheduleKey(check_flow(flow), str(Scope.parse(scope)), name)


def key_of(schedule: Schedule) -> ScheduleKey:
    """Return the key of a schedule."""
    return ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)


def secrets_of(schedule: Schedule, extra: Collection[str] = ()) -> frozenset[str]:
    """Return the secret values of a schedule's input; no view may show them."""
    return secret_values(_input(schedule), extra)


def view_schedule(
    schedule: Schedule, row: IndexRow | None, extra: Collection[str] = ()
) -> ScheduleView:
    """Return a schedule without secrets; `extra` are the secret names its action declares."""
    definition = schedule.definition
    secrets = secrets_of(schedule, extra)
    return ScheduleView(
        id=schedule.id,
        key=key_text(key_of(schedule)),
        flow=schedule.flow,
        scope=str(schedule.scope),
        name=schedule.name,
        action=definition.action,
        state=schedule.state,
        words=definition.trigger.words,
        zone=definition.trigger.tz,
        trigger=definition.trigger.to_json(),
        next_at=None if row is None else from_ms(row.nominal_ms),
        next_run_at=None if row is None else from_ms(row.run_at_ms),
        runs_left=_runs_left(schedule, row),
        max_runs=definition.max_runs,
        delete_after_completion=definition.delete_after_completion,
        hand_over=definition.hand_over,
        policies=msgspec.to_builtins(definition.policies),
        description=scrub(definition.description, secrets),
        note=scrub(definition.note, secrets),
        error=_scrubbed(schedule.error, secrets),
        input_preview=preview(_input(schedule), extra),
        version=schedule.version,
        created_at=from_ms(schedule.created_at_ms),
        updated_at=from_ms(schedule.updated_at_ms),
    )


def view_events(
    events: Sequence[ScheduleEvent], secrets: Collection[str] = ()
) -> list[ScheduleEventView]:
    """Return the events of a schedule, scrubbed."""
    return [
        ScheduleEventView(
            from_ms(event.at_ms),
            event.kind,
            scrub(event.by, secrets),
            _scrubbed(event.detail.get("note"), secrets),
            event.detail.get("trigger"),
            _scrubbed(event.detail.get("error"), secrets),
        )
        for event in events
    ]


def view_occurrence(row: Occurrence, secrets: Collection[str] = ()) -> OccurrenceView:
    """Return the view of a ledger row."""
    fired_at_ms = row.fired_at_ms
    return OccurrenceView(
        nominal_at=from_ms(row.nominal_ms),
        until_at=from_ms(row.until_ms),
        times=row.count,
        run_at=from_ms(row.run_at_ms),
        state=row.state,
        job_id=row.job_id,
        reason=_scrubbed(row.reason, secrets),
        fired_at=None if fired_at_ms is None else from_ms(fired_at_ms),
        ended_at=None if row.ended_at_ms is None else from_ms(row.ended_at_ms),
        late_ms=None if fired_at_ms is None else fired_at_ms - row.run_at_ms,
    )


def _runs_left(schedule: Schedule, row: IndexRow | None) -> int | None:
    """Return the runs left, also for a paused, external or finished schedule."""
    had = known_runs(schedule, None if row is None else row.runs_left)
    return runs_left(schedule.definition.max_runs, had)


def _input(schedule: Schedule) -> str:
    return json.dumps(schedule.definition.input, ensure_ascii=False)


def _scrubbed(text: str | None, secrets: Collection[str]) -> str | None:
    return None if text is None else scrub(text, secrets)
