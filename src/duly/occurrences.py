"""Stations 3 to 5: index rows and how they advance.

Takes narrow rows and the time; gives what fired, how many times were missed, and where each row
goes next. Pure: the store reads the rows, asks here, and writes the answer in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec

from duly.errors import InvalidInput, InvalidTrigger
from duly.schedules import HandOver, Policies, Schedule, ScheduleId
from duly.triggers import Trigger, next_after_many, parse_trigger
from duly.triggers.instants import END_MS, STORED_FROM_MS
from duly.triggers.trigger import JSON_VERSION, MAX_SPREAD_MS

TRIGGER_VERSION = JSON_VERSION
"""The newest trigger version this release can evaluate; newer rows are left to newer nodes."""
MAX_MISSED = 10_000
"""Missed times are counted up to here; a count that reaches it means "at least"."""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The narrow hot row of one schedule that has a next time."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    trigger: str
    """The bound trigger as JSON text."""
    nominal_ms: int
    run_at_ms: int
    zone: str = "UTC"
    hand_over: HandOver = "jobs"
    priority: int = 0
    policies: str = "{}"
    runs_left: int | None = None
    trigger_version: int = TRIGGER_VERSION
    version: int = 1

    def __post_init__(self) -> None:
        # A nominal time at the end of time or later could not be asked about: one such row would
        # spoil the whole batch it is claimed with.
        for what, ms, end_ms in (
            ("nominal_ms", self.nominal_ms, END_MS),
            ("run_at_ms", self.run_at_ms, END_MS + MAX_SPREAD_MS),
        ):
            if type(ms) is not int or not STORED_FROM_MS <= ms < end_ms:
                raise InvalidInput(
                    f"{what} of {self.flow}/{self.scope}/{self.name} is {ms!r}; allowed: "
                    "milliseconds since 1970 in the years 2000 to 2199 (not seconds)"
                )


class Due(NamedTuple):
    """What an advance needs of a row. These three are tuples because a claim makes thousands."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    trigger: str
    nominal_ms: int
    run_at_ms: int
    runs_left: int | None
    version: int


class Claimed(NamedTuple):
    """One occurrence that a claim took: what fired, and how many times passed unclaimed since."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    nominal_ms: int
    run_at_ms: int
    missed: int
    version: int
    """The row's version before the advance."""


class Advance(NamedTuple):
    """Where one row goes: a next time, or none (finished), or quarantine."""

    schedule_id: ScheduleId
    nominal_ms: int | None
    run_at_ms: int | None
    runs_left: int | None
    missed: int
    error: str | None = None


def claimed_from(row: IndexRow | Due, move: Advance) -> Claimed:
    """What fired, as it stood before the advance."""
    return Claimed(
        row.schedule_id,
        row.flow,
        row.scope,
        row.name,
        row.nominal_ms,
        row.run_at_ms,
        move.missed,
        row.version,
    )


def index_row(
    schedule: Schedule, after_ms: int, *, runs_left: int | None = None
) -> IndexRow | None:
    """The row of a schedule whose next time lies after an instant; None when it has no row."""
    if schedule.state != "active":
        return None
    definition = schedule.definition
    trigger = definition.trigger
    # Due means run time, so a nominal time whose run time is still to come counts as next.
    nominal = trigger.next_after_ms(max(0, after_ms - trigger.offset_ms))
    if nominal is None:
        return None
    return IndexRow(
        schedule_id=schedule.id,
        flow=schedule.flow,
        scope=str(schedule.scope),
        name=schedule.name,
        trigger=trigger_text(trigger),
        nominal_ms=nominal,
        run_at_ms=nominal + trigger.offset_ms,
        zone=trigger.tz,
        hand_over=definition.hand_over,
        priority=definition.policies.priority,
        policies=policies_text(definition.policies),
        runs_left=definition.max_runs if runs_left is None else runs_left,
    )


def trigger_text(trigger: Trigger) -> str:
    """A trigger as compact JSON, the same text for equal triggers."""
    return json.dumps(trigger.to_json(), separators=(",", ":"), sort_keys=True)


@lru_cache(maxsize=1_024)
def policies_text(policies: Policies) -> str:
    """Policies as compact JSON without defaults, the same text for equal policies."""
    return msgspec.json.encode(_differing(policies), order="deterministic").decode()


def _differing(value: msgspec.Struct) -> dict[str, object]:
    """The fields that are not at their defaults; omit_defaults compares identities only."""
    usual = type(value)()
    found = {name: getattr(value, name) for name in value.__struct_fields__}
    return {
        name: _differing(each) if isinstance(each, msgspec.Struct) else each
        for name, each in found.items()
        if each != getattr(usual, name)
    }


@lru_cache(maxsize=65_536)
def trigger_of(text: str) -> Trigger:
    """The trigger of its text; equal texts give the same object, so that rows share their work."""
    return parse_trigger(text)


def advance(rows: Sequence[IndexRow | Due], now_ms: int) -> list[Advance]:
    """Move due rows past an instant. A row that cannot be evaluated is quarantined, alone."""
    triggers = [_evaluable(row.trigger) for row in rows]
    following = iter(
        next_after_many(
            [each for each in triggers if not isinstance(each, str)],
            [
                row.nominal_ms
                for row, each in zip(rows, triggers, strict=True)
                if not isinstance(each, str)
            ],
        )
    )
    return [
        Advance(row.schedule_id, None, None, row.runs_left, 0, error=trigger)
        if isinstance(trigger, str)
        else _advance_one(row, trigger, next(following), now_ms)
        for row, trigger in zip(rows, triggers, strict=True)
    ]


@lru_cache(maxsize=65_536)
def _evaluable(text: str) -> Trigger | str:
    """The trigger of its text, or why there is none."""
    try:
        trigger = trigger_of(text)
    except InvalidTrigger as error:
        return str(error)
    return trigger if trigger.is_bound else "the trigger is not bound to its schedule"


def _advance_one(
    row: IndexRow | Due, trigger: Trigger, nominal: int | None, now_ms: int
) -> Advance:
    """Past the row's own time and past now, counting what lies between."""
    offset_ms = row.run_at_ms - row.nominal_ms
    if row.runs_left is None and nominal is not None and nominal + offset_ms > now_ms:
        return Advance(row.schedule_id, nominal, nominal + offset_ms, None, 0)  # as nearly always
    missed = 0
    while nominal is not None and nominal + offset_ms <= now_ms:
        missed += 1
        if missed == MAX_MISSED:
            nominal = trigger.next_after_ms(now_ms - offset_ms)
            break
        nominal = trigger.next_after_ms(nominal)
    runs_left = None if row.runs_left is None else row.runs_left - 1
    if nominal is None or (runs_left is not None and runs_left <= 0):
        return Advance(row.schedule_id, None, None, runs_left, missed)
    return Advance(row.schedule_id, nominal, nominal + offset_ms, runs_left, missed)
