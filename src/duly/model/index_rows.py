"""Index rows and how they advance.

Computes from due rows and the time what fired, how many times were missed, and each row's next
time. Pure: the store reads the rows, calls this, and writes the result in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec

from duly.errors import InvalidInput, InvalidTrigger
from duly.model.schedules import HandOver, Policies, Schedule, ScheduleId, is_indexed
from duly.triggers import Trigger, next_after_many, parse_trigger
from duly.triggers.instants import END_MS, STORED_FROM_MS
from duly.triggers.trigger import JSON_VERSION, MAX_SPREAD_MS, NEWEST_VERSION

TRIGGER_VERSION = NEWEST_VERSION
"""The newest trigger version this release can evaluate; newer rows are left for newer nodes."""
MAX_MISSED = 10_000
"""Missed times are counted up to this; a count that reaches it means "at least"."""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The narrow hot row of one schedule that has a next time.

    A row that an application upserts itself, with its definition stored elsewhere, is claimed only
    by claim_due(): a planner would find no definition.
    """

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    trigger: str
    """The bound trigger as JSON text."""
    nominal_ms: int
    run_at_ms: int
    zone: str = "UTC"
    hand_over: HandOver = "external"
    """Who claims it: `jobs`: a planner; `http`: a tick; `external`: callers of claim_due()."""
    priority: int = 0
    policies: str = "{}"
    runs_left: int | None = None
    trigger_version: int = JSON_VERSION
    """The oldest version that can express the trigger."""
    version: int = 1

    def __post_init__(self) -> None:
        # A nominal time outside the range cannot be evaluated: one such row would fail the whole
        # batch it is claimed in.
        for what, ms, end_ms in (
            ("nominal_ms", self.nominal_ms, END_MS),
            ("run_at_ms", self.run_at_ms, END_MS + MAX_SPREAD_MS),
        ):
            if type(ms) is not int or not STORED_FROM_MS <= ms < end_ms:
                raise InvalidInput(
                    f"{what} of {self.flow}/{self.scope}/{self.name} is {ms!r}; allowed: "
                    "milliseconds since 1970 in the years 2000 to 2199 (not seconds)"
                )


class Claimed(NamedTuple):
    """One claimed occurrence, and how many later times have passed unclaimed.

    A tuple because a claim creates thousands.
    """

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
    """The new state of one row: a next time, none (finished), or quarantine."""

    schedule_id: ScheduleId
    nominal_ms: int | None
    run_at_ms: int | None
    runs_left: int | None
    missed: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Moves:
    """The new state of many rows by position: Advance in columns."""

    nominal_ms: list[int | None]
    run_at_ms: list[int | None]
    runs_left: list[int | None]
    missed: list[int]
    errors: dict[int, str]

    def of(self, i: int, schedule_id: ScheduleId) -> Advance:
        """Return the Advance at a position."""
        return Advance(
            schedule_id,
            self.nominal_ms[i],
            self.run_at_ms[i],
            self.runs_left[i],
            self.missed[i],
            self.errors.get(i),
        )

    def only(self, positions: Sequence[int]) -> Moves:
        """Return the moves at some positions, none of which is in error."""
        return Moves(
            [self.nominal_ms[i] for i in positions],
            [self.run_at_ms[i] for i in positions],
            [self.runs_left[i] for i in positions],
            [self.missed[i] for i in positions],
            {},
        )

    def step(self, i: int, trigger: Trigger, offset_ms: int, now_ms: int) -> None:
        """Advance a row past `now_ms`; count the times in between, and the run."""
        nominal, missed = self.nominal_ms[i], 0
        while nominal is not None and nominal + offset_ms <= now_ms:
            missed += 1
            if missed == MAX_MISSED:
                nominal = trigger.next_after_ms(now_ms - offset_ms)
                break
            nominal = trigger.next_after_ms(nominal)
        left = self.runs_left[i]
        if left is not None:
            self.runs_left[i] = left = left - 1
            if left <= 0:
                nominal = None
        self.nominal_ms[i] = nominal
        self.run_at_ms[i] = None if nominal is None else nominal + offset_ms
        self.missed[i] = missed


def claimed_from(row: IndexRow, move: Advance) -> Claimed:
    """Return the occurrence of a row as it was before the advance."""
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


def is_overdue(row: IndexRow, now_ms: int) -> bool:
    """Return whether the row is due for a planner or a tick of this version."""
    is_ours = row.hand_over != "external" and row.trigger_version <= TRIGGER_VERSION
    return is_ours and row.run_at_ms <= now_ms


def index_row(
    schedule: Schedule, after_ms: int, *, runs_left: int | None = None
) -> IndexRow | None:
    """Return a schedule's row with its next time after an instant; None if it has no row."""
    definition = schedule.definition
    trigger = definition.trigger
    if schedule.state != "active" or not is_indexed(definition):
        return None
    nominal = next_nominal_ms(trigger, after_ms)
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
        trigger_version=trigger.version,
    )


def next_nominal_ms(trigger: Trigger, after_ms: int) -> int | None:
    """Return the nominal time of the first run after an instant."""
    # Due means run time, so a nominal time whose run time is still to come counts as next.
    return trigger.next_after_ms(max(0, after_ms - trigger.offset_ms))


def trigger_text(trigger: Trigger) -> str:
    """Return a trigger as compact JSON, the same text for equal triggers."""
    return json.dumps(trigger.to_json(), separators=(",", ":"), sort_keys=True)


@lru_cache(maxsize=1_024)
def policies_text(policies: Policies) -> str:
    """Return policies as compact JSON without defaults, the same text for equal policies."""
    return msgspec.json.encode(_differing(policies), order="deterministic").decode()


def _differing(value: msgspec.Struct) -> dict[str, object]:
    """Return the fields that differ from their defaults; omit_defaults compares identity only."""
    usual = type(value)()
    found = {name: getattr(value, name) for name in value.__struct_fields__}
    return {
        name: _differing(each) if isinstance(each, msgspec.Struct) else each
        for name, each in found.items()
        if each != getattr(usual, name)
    }


@lru_cache(maxsize=65_536)
def trigger_of(text: str) -> Trigger:
    """Return the trigger of its text, the same object for equal texts, so that rows share work."""
    return parse_trigger(text)


def advance(rows: Sequence[IndexRow], now_ms: int) -> list[Advance]:
    """Advance due rows past an instant; quarantine only the rows that cannot be evaluated."""
    moves = advance_columns(
        [row.trigger for row in rows],
        [row.nominal_ms for row in rows],
        [row.run_at_ms for row in rows],
        [row.runs_left for row in rows],
        now_ms,
    )
    return [moves.of(i, row.schedule_id) for i, row in enumerate(rows)]


def advance_columns(
    triggers: Sequence[str],
    nominal_ms: Sequence[int],
    run_at_ms: Sequence[int],
    runs_left: Sequence[int | None],
    now_ms: int,
) -> Moves:
    """Advance rows given as columns, so that a claim of thousands creates no object per row."""
    evaluable = [_evaluable(text) for text in triggers]
    errors = {i: each for i, each in enumerate(evaluable) if isinstance(each, str)}
    following = next_after_many(
        [each for each in evaluable if not isinstance(each, str)],
        [ms for i, ms in enumerate(nominal_ms) if i not in errors],
    )
    for i in errors:
        following.insert(i, None)
    asked = zip(following, nominal_ms, run_at_ms, strict=True)
    running = [None if ms is None else ms + run_at - nominal for ms, nominal, run_at in asked]
    moves = Moves(following, running, list(runs_left), [0] * len(running), errors)
    for i, (ms, left) in enumerate(zip(running, runs_left, strict=True)):
        # Nearly always a row advances by one time and needs nothing else.
        if left is not None or ms is None or ms <= now_ms:
            trigger = evaluable[i]
            if not isinstance(trigger, str):
                moves.step(i, trigger, run_at_ms[i] - nominal_ms[i], now_ms)
    return moves


@lru_cache(maxsize=65_536)
def _evaluable(text: str) -> Trigger | str:
    """Return the trigger of its text, or the error."""
    try:
        trigger = trigger_of(text)
    except InvalidTrigger as error:
        return str(error)
    return trigger if trigger.is_bound else "the trigger is not bound to its schedule"
