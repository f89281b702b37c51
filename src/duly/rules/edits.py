"""Station 2: what a write to a schedule means. Pure.

Takes the write, what is stored, and the time; gives the schedule and row as they shall stand, with
the event to record; or a refusal. Timing that did not change keeps the row's place.
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
from duly.rules.planning import Come, PlannedOccurrence, plan_times, taken_back, unplanned_times
from duly.rules.quotas import Holdings, refuse_full, timing
from duly.rules.runs import left_of, runs_after_edit


@dataclass(frozen=True, slots=True)
class Stored:
    """A schedule as it stands, with its row if it has a next time."""

    schedule: Schedule
    """Its runs are counted, whatever release stored it."""
    row: IndexRow | None
    rests_at_ms: int | None = None
    """The time that a quarantined row came to, and no further."""


@dataclass(frozen=True, slots=True)
class Edit:
    """How schedule and row shall stand; no event: nothing changed, nothing is written."""

    schedule: Schedule
    row: IndexRow | None
    event: ScheduleEvent | None
    before: Schedule | None = None
    """As it stood; None: it is new."""
    again: tuple[PlannedOccurrence, ...] = ()
    """What becomes of withdrawn times that have come, and that the row stands behind."""

    @property
    def withdraws(self) -> bool:
        """Whether what was planned by the old definition no longer stands."""
        if self.before is None or self.event is None:
            return False
        old, new = self.before.definition, self.schedule.definition
        return not without_words(new).is_same(without_words(old))

    @property
    def retimes(self) -> bool:
        """Whether times that the old definition had may be lost to the new one."""
        if self.before is None or self.event is None:
            return False
        return timing(self.before.definition) != timing(self.schedule.definition)

    @property
    def moves(self) -> bool:
        """Whether it says more than words: they move no hand, and plan nothing."""
        return self.before is None or self.withdraws or self.before.state == "quarantined"

    @property
    def resumes(self) -> bool:
        """Whether a pause ends here."""
        return self.event is not None and self.event.kind == "resumed"


class Taken(NamedTuple):
    """What an edit takes back of the times that its schedule had."""

    withdrawn: Sequence[int] = ()
    """They were planned, and had not begun."""
    admitted: Mapping[int, str | None] = {}
    """Those of them that were queued or in line, with their reasons."""
    unplanned: Sequence[int] = ()
    """They have come, but what they were spread by has not."""


def unplanned(edit: Edit, stored: Stored | None, now_ms: int) -> list[int]:
    """Times that have come, and that the row of a new rule would pass by."""
    if stored is None or stored.row is None or not edit.retimes:
        return []
    return unplanned_times(stored.row, now_ms)


def plan_write(
    write: ScheduleWrite, stored: Stored | None, holdings: Holdings, now_ms: int
) -> Edit | Refused:
    """Decide one write; `holdings` counts what the owner has."""
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
    """Return a definition whose input is what its JSON says: a tuple is a list."""
    if definition.input is None or isinstance(definition.input, str | int):
        return definition
    return structs.replace(definition, input=json.decode(json.encode(definition.input)))


def set_back(edit: Edit, taken: Taken, stored: Stored | None) -> Edit:
    """Let times that the new definition still has be planned again.

    Runs that were charged for withdrawn times are given back.
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
        edit = _come_again(edit, Come(come, on_time, is_last), at_ms)
    gone = [ms for ms in taken.unplanned if ms not in standing]
    if gone and stored.row is not None:
        reason = f"withdrawn: schedule {event.kind}"
        edit = replace(edit, again=(*edit.again, *taken_back(stored.row, gone, reason)))
    return edit


def _given_back(edit: Edit, old: Schedule, withdrawn: int, at_ms: int) -> Edit:
    """The count without withdrawn runs; what was finished for want of them goes on."""
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
    """Let the row begin again with a time to come; all from there to its own were its times."""
    row = edit.row
    if row is not None and row.nominal_ms <= first_ms:
        return edit
    schedule = replace(edit.schedule, state="active", error=None)
    offset_ms = schedule.definition.trigger.offset_ms
    back = index_row(schedule, first_ms - 1 + offset_ms, runs_left=left_of(schedule))
    if back is not None:
        back = replace(back, version=1 if row is None else row.version)
    return replace(edit, schedule=schedule, row=back)


def _come_again(edit: Edit, come: Come, now_ms: int) -> Edit:
    """Plan times that have come by themselves; no row is set back behind the edit.

    Between them and the edit the rule may have times that were never this schedule's, and others
    that the ledger has: a policy that saw them would choose one of those to run.
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
    """The schedule and its row after an instant; one without a time or a run left has finished."""
    left = left_of(schedule)
    next_ms = next_nominal_ms(schedule.definition.trigger, after_ms)
    if schedule.state == "active" and (next_ms is None or left == 0):
        finished: ScheduleState = "finished"
        return replace(schedule, state=finished), None
    row = index_row(schedule, after_ms)
    return schedule, None if row is None else replace(row, runs_left=left)


def _begins_after_ms(definition: Definition, stored: Stored, now_ms: int) -> int:
    """Where a row begins: with the edit, or where it was quarantined if the timing is as it was."""
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
