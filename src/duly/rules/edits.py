"""Decisions on schedule writes.

From a write, the stored schedule and the time they compute the new schedule, its row and the event
to record, or a refusal. An edit that does not change the timing keeps the row's next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import json, structs

from duly.model.documents import ABSENT, Refused
from duly.model.index_rows import IndexRow, index_row, is_overdue, next_nominal_ms, policies_text
from duly.model.schedule_writes import ScheduleEvent, ScheduleWrite
from duly.model.schedules import (
    Definition,
    Schedule,
    ScheduleState,
    bind,
    binding_key,
    check,
    check_edit,
    first_after_ms,
    is_indexed,
    rebind,
    state_of,
    without_words,
)
from duly.model.scopes import Scope
from duly.rules.planning import DueTimes, PlannedOccurrence, plan_times, taken_back, unplanned_times
from duly.rules.quotas import Holdings, refuse_full, timing
from duly.rules.runs import left_of, runs_after_edit


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored schedule, with its row if it has a next time."""

    schedule: Schedule
    """Its runs are counted, also if an earlier release stored it."""
    row: IndexRow | None
    rests_at_ms: int | None = None
    """The nominal time at which a row was quarantined."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The new schedule and row; no event: nothing changed, nothing is written."""

    schedule: Schedule
    row: IndexRow | None
    event: ScheduleEvent | None
    before: Schedule | None = None
    """The stored schedule; None: it is new."""
    again: tuple[PlannedOccurrence, ...] = ()
    """Occurrences of due times that were withdrawn and are before the row's next time."""

    @property
    def withdraws(self) -> bool:
        """Return whether occurrences planned by the old definition are withdrawn."""
        if self.before is None or self.event is None:
            return False
        old, new = self.before.definition, self.schedule.definition
        return not without_words(new).is_same(without_words(old))

    @property
    def retimes(self) -> bool:
        """Return whether the timing changed, so that times of the old definition may be lost."""
        if self.before is None or self.event is None:
            return False
        return timing(self.before.definition) != timing(self.schedule.definition)

    @property
    def moves(self) -> bool:
        """Return whether it changes more than description and note, which need no planning."""
        return self.before is None or self.withdraws or self.before.state == "quarantined"

    @property
    def resumes(self) -> bool:
        """Return whether it ends a pause."""
        return self.event is not None and self.event.kind == "resumed"


class Taken(NamedTuple):
    """Times of a schedule that an edit withdraws."""

    withdrawn: Sequence[int] = ()
    """Planned times whose run had not started."""
    admitted: Mapping[int, str | None] = {}
    """Withdrawn times that were queued or in line, with their reasons."""
    unplanned: Sequence[int] = ()
    """Nominal times that have passed, but not yet their spread."""


def unplanned(edit: Edit, stored: Stored | None, now_ms: int) -> list[int]:
    """Return passed nominal times that the row of a new rule would skip."""
    if stored is None or stored.row is None or not edit.retimes:
        return []
    return unplanned_times(stored.row, now_ms)


def plan_write(
    write: ScheduleWrite, stored: Stored | None, holdings: Holdings, now_ms: int
) -> Edit | Refused:
    """Decide one write; `holdings` counts the owner's schedules."""
    scope = Scope.parse(write.key.scope)
    refusal = _refusal(write, stored)
    if refusal is not None:
        return refusal
    if stored is None:
        return refuse_full(write, None, holdings) or _create(write, scope, now_ms)
    return _change(write, stored, holdings, now_ms)


def _refusal(write: ScheduleWrite, stored: Stored | None) -> Refused | None:
    expected = write.expected_version
    if stored is None:
        return None if expected in (None, ABSENT) else Refused("absent", ABSENT)
    if expected in (None, stored.schedule.version):
        return None
    if expected == ABSENT:
        return Refused("exists", stored.schedule.version)
    return Refused("stale", stored.schedule.version)


def _create(write: ScheduleWrite, scope: Scope, now_ms: int) -> Edit:
    key = write.key
    given = _as_stored(write.definition)
    definition = bind(given, binding_key(key.flow, scope, key.name), now_ms)
    check(definition, scope, write.limits, now_ms)
    schedule = Schedule(
        id=write.id,
        flow=key.flow,
        scope=scope,
        name=key.name,
        definition=definition,
        state=state_of(definition),
        version=1,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        runs_had=None if definition.max_runs is None else 0,
    )
    schedule, row = _placed(schedule, first_after_ms(definition, now_ms))
    return Edit(schedule, row, ScheduleEvent(write.id, "created", now_ms, write.by))


def _change(
    write: ScheduleWrite, stored: Stored, holdings: Holdings, now_ms: int
) -> Edit | Refused:
    old = stored.schedule
    definition = rebind(_as_stored(write.definition), old.key, old.definition, now_ms)
    is_quarantined = old.state == "quarantined"
    if definition.is_same(old.definition) and not is_quarantined:
        return Edit(old, stored.row, None)
    is_retimed = timing(definition) != timing(old.definition)
    refused = refuse_full(write, old, holdings, is_retimed=is_retimed)
    if refused is not None:
        return refused
    check_edit(definition, old, write.limits, now_ms)
    schedule = replace(
        old,
        definition=definition,
        version=old.version + 1,
        updated_at_ms=now_ms,
        runs_had=runs_after_edit(old.definition, old.runs_had, definition, 0),
    )
    if not is_retimed and not is_quarantined:
        row = None if stored.row is None else _with_policies(stored.row, definition)
    else:
        fresh = replace(schedule, state=state_of(definition), error=None)
        schedule, row = _placed(fresh, _begins_after_ms(definition, stored, now_ms))
        if row is not None and stored.row is not None:
            row = replace(row, version=stored.row.version + 1)
    return Edit(schedule, row, _event(write, old, definition, now_ms), old)


def _as_stored(definition: Definition) -> Definition:
    """Return the definition with its input as decoded from JSON: a tuple becomes a list."""
    if definition.input is None or isinstance(definition.input, str | int):
        return definition
    return structs.replace(definition, input=json.decode(json.encode(definition.input)))


def set_back(edit: Edit, taken: Taken, stored: Stored | None) -> Edit:
    """Return the edit with withdrawn times that the new definition still has planned again.

    Runs charged for withdrawn times are credited.
    """
    event = edit.event
    if stored is None or event is None:
        return edit
    at_ms = event.at_ms
    edit = _given_back(edit, stored.schedule, len(taken.withdrawn), at_ms)
    definition, left = edit.schedule.definition, left_of(edit.schedule)
    trigger = definition.trigger
    if not is_indexed(definition) or left == 0:
        return edit
    times = sorted([*taken.withdrawn, *taken.unplanned])
    standing = [ms for ms in times if trigger.next_after_ms(ms - 1) == ms]
    come = [ms for ms in standing if ms + trigger.offset_ms <= at_ms]
    if len(come) < len(standing):
        edit = _row_back(edit, standing[len(come)])
    if come:
        is_last = edit.row is None or not is_overdue(edit.row, at_ms)
        on_time = {**taken.admitted, **dict.fromkeys(taken.unplanned)}
        edit = _come_again(edit, DueTimes(come, on_time, is_last), at_ms)
    dropped = [ms for ms in taken.unplanned if ms not in standing]
    if dropped and stored.row is not None:
        reason = f"withdrawn: schedule {event.kind}"
        edit = replace(edit, again=(*edit.again, *taken_back(stored.row, dropped, reason)))
    return edit


def _given_back(edit: Edit, old: Schedule, withdrawn: int, at_ms: int) -> Edit:
    """Subtract withdrawn runs from the count; a schedule finished by `max_runs` may continue."""
    schedule, row = edit.schedule, edit.row
    had = runs_after_edit(old.definition, old.runs_had, schedule.definition, withdrawn)
    schedule = replace(schedule, runs_had=had)
    if schedule.state == "finished" and left_of(schedule) != 0:
        going = replace(schedule, state=state_of(schedule.definition))
        schedule, row = _placed(going, at_ms)
    if row is not None:
        row = replace(row, runs_left=left_of(schedule))
    return replace(edit, schedule=schedule, row=row)


def _row_back(edit: Edit, first_ms: int) -> Edit:
    """Set the row back to a time still to come; all times from there to its own were its times."""
    row = edit.row
    if row is not None and row.nominal_ms <= first_ms:
        return edit
    schedule = replace(edit.schedule, state="active", error=None)
    offset_ms = schedule.definition.trigger.offset_ms
    back = index_row(schedule, first_ms - 1 + offset_ms, runs_left=left_of(schedule))
    if back is not None:
        back = replace(back, version=1 if row is None else row.version)
    return replace(edit, schedule=schedule, row=back)


def _come_again(edit: Edit, come: DueTimes, now_ms: int) -> Edit:
    """Plan due times separately; the row is not set back to before the edit.

    Between them and the edit the rule may have times that never belonged to this schedule, and
    others that the ledger has: a misfire policy would choose one of those to run.
    """
    offset_ms = edit.schedule.definition.trigger.offset_ms
    active = replace(edit.schedule, state="active", error=None)
    before = left_of(active)
    back = index_row(active, come.times[0] - 1 + offset_ms, runs_left=before)
    if back is None:
        return edit
    again, left = plan_times(back, come, now_ms)
    edit = replace(edit, again=tuple(again))
    if before is None or left is None:
        return edit
    had = (active.runs_had or 0) + before - left
    if left == 0:
        finished = replace(active, state="finished", runs_had=had)
        return replace(edit, schedule=finished, row=None)
    row = None if edit.row is None else replace(edit.row, runs_left=left)
    return replace(edit, schedule=replace(edit.schedule, runs_had=had), row=row)


def _placed(schedule: Schedule, after_ms: int) -> tuple[Schedule, IndexRow | None]:
    """Return the schedule and its row after an instant; finished without a time or run left."""
    left = left_of(schedule)
    next_ms = next_nominal_ms(schedule.definition.trigger, after_ms)
    if schedule.state == "active" and (next_ms is None or left == 0):
        finished: ScheduleState = "finished"
        return replace(schedule, state=finished), None
    row = index_row(schedule, after_ms)
    return schedule, None if row is None else replace(row, runs_left=left)


def _begins_after_ms(definition: Definition, stored: Stored, now_ms: int) -> int:
    """Return the instant after which a row starts: the edit, or where it was quarantined."""
    rests_at_ms = stored.rests_at_ms
    if definition.trigger != stored.schedule.definition.trigger:
        return first_after_ms(definition, now_ms)
    if rests_at_ms is None or timing(definition) != timing(stored.schedule.definition):
        return now_ms
    return rests_at_ms - 1 + definition.trigger.offset_ms


def _with_policies(row: IndexRow, definition: Definition) -> IndexRow:
    return replace(
        row,
        priority=definition.policies.priority,
        policies=policies_text(definition.policies),
        version=row.version + 1,
    )


def _event(
    write: ScheduleWrite, old: Schedule, definition: Definition, now_ms: int
) -> ScheduleEvent:
    detail: dict[str, object] = {}
    if definition.trigger != old.definition.trigger:
        detail["trigger"] = old.definition.trigger.to_json()
    if old.definition.enabled and not definition.enabled:
        if definition.note:
            detail["note"] = definition.note
        return ScheduleEvent(old.id, "paused", now_ms, write.by, detail)
    if definition.enabled and not old.definition.enabled:
        return ScheduleEvent(old.id, "resumed", now_ms, write.by, detail)
    return ScheduleEvent(old.id, "changed", now_ms, write.by, detail)
