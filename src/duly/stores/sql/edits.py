"""Station 2: what a write to a schedule means. Pure.

Takes the write, what is stored, and the time; gives the schedule and row as they shall stand, with
the event to record; or a refusal. Timing that did not change keeps the row's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from duly.occurrences import IndexRow, index_row, is_overdue, policies_text
from duly.planning import Come, PlannedOccurrence, plan_times, taken_back, unplanned_times
from duly.schedules import (
    Definition,
    Schedule,
    ScheduleState,
    bind,
    binding_key,
    check,
    check_edit,
    rebind,
    state_of,
)
from duly.scopes import Scope
from duly.store import ABSENT, Refused, ScheduleEvent, ScheduleWrite


@dataclass(frozen=True, slots=True)
class Stored:
    """A schedule as it stands, with its row if it has a next time."""

    schedule: Schedule
    row: IndexRow | None
    runs: int = 0
    """Runs that the ledger has; counted where there is no row to know it."""
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
        return not structs.replace(new, description=old.description, note=old.note).is_same(old)

    @property
    def retimes(self) -> bool:
        """Whether times that the old definition had may be lost to the new one."""
        if self.before is None or self.event is None:
            return False
        return _timing(self.before.definition) != _timing(self.schedule.definition)

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
    write: ScheduleWrite, stored: Stored | None, held: int, now_ms: int
) -> Edit | Refused:
    """Decide one write; `held` is how many schedules the scope has."""
    scope = Scope.parse(write.key.scope)
    refusal = _refusal(write, stored, scope, held)
    if refusal is not None:
        return refusal
    if stored is None:
        return _create(write, scope, now_ms)
    return _change(write, stored, now_ms)


def _refusal(
    write: ScheduleWrite, stored: Stored | None, scope: Scope, held: int
) -> Refused | None:
    expected = write.expected_version
    if stored is None:
        if expected not in (None, ABSENT):
            return Refused("absent", ABSENT)
        is_full = scope.kind != "system" and held >= write.limits.schedules
        return Refused("full", held) if is_full else None
    if expected in (None, stored.schedule.version):
        return None
    if expected == ABSENT:
        return Refused("exists", stored.schedule.version)
    return Refused("stale", stored.schedule.version)


def _create(write: ScheduleWrite, scope: Scope, now_ms: int) -> Edit:
    key = write.key
    definition = bind(write.definition, binding_key(key.flow, scope, key.name), now_ms)
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
    )
    schedule, row = _placed(schedule, now_ms, definition.max_runs)
    return Edit(schedule, row, ScheduleEvent(write.id, "created", now_ms, write.by))


def _change(write: ScheduleWrite, stored: Stored, now_ms: int) -> Edit:
    old = stored.schedule
    definition = rebind(write.definition, old.key, old.definition, now_ms)
    is_quarantined = old.state == "quarantined"
    if definition.is_same(old.definition) and not is_quarantined:
        return Edit(old, stored.row, None)
    check_edit(definition, old, write.limits, now_ms)
    schedule = replace(old, definition=definition, version=old.version + 1, updated_at_ms=now_ms)
    if _timing(definition) == _timing(old.definition) and not is_quarantined:
        row = None if stored.row is None else _with_policies(stored.row, definition)
    else:
        runs_left = _runs_left(definition, stored)
        fresh = replace(schedule, state=state_of(definition), error=None)
        schedule, row = _placed(fresh, _begins_after_ms(definition, stored, now_ms), runs_left)
        if row is not None and stored.row is not None:
            row = replace(row, version=stored.row.version + 1)
    return Edit(schedule, row, _event(write, old, definition, now_ms), old)


def set_back(edit: Edit, taken: Taken, stored: Stored | None) -> Edit:
    """Let times that the new definition still has be planned again.

    Runs that were charged for withdrawn times are given back.
    """
    schedule, row = edit.schedule, edit.row
    definition, trigger = schedule.definition, schedule.definition.trigger
    event = edit.event
    if stored is None or event is None or state_of(definition) != "active":
        return edit
    at_ms = event.at_ms
    runs_left = _runs_left(definition, stored, len(taken.withdrawn))
    if schedule.state == "finished" and runs_left != 0:
        active: ScheduleState = "active"
        schedule, row = _placed(replace(schedule, state=active), at_ms, runs_left)
    if row is not None:
        row = replace(row, runs_left=runs_left)
    edit = replace(edit, schedule=schedule, row=row)
    if runs_left == 0:
        return edit
    times = sorted([*taken.withdrawn, *taken.unplanned])
    standing = [ms for ms in times if trigger.next_after_ms(ms - 1) == ms]
    come = [ms for ms in standing if ms + trigger.offset_ms <= at_ms]
    if len(come) < len(standing):
        edit = _row_back(edit, standing[len(come)], runs_left)
    if come:
        is_last = edit.row is None or not is_overdue(edit.row, at_ms)
        on_time = {**taken.admitted, **dict.fromkeys(taken.unplanned)}
        edit = _come_again(edit, Come(come, on_time, is_last), at_ms, runs_left)
    gone = [ms for ms in taken.unplanned if ms not in standing]
    if gone and stored.row is not None:
        reason = f"withdrawn: schedule {event.kind}"
        edit = replace(edit, again=(*edit.again, *taken_back(stored.row, gone, reason)))
    return edit


def _row_back(edit: Edit, first_ms: int, runs_left: int | None) -> Edit:
    """Let the row begin again with a time to come; all from there to its own were its times."""
    row = edit.row
    if row is not None and row.nominal_ms <= first_ms:
        return edit
    schedule = replace(edit.schedule, state="active", error=None)
    offset_ms = schedule.definition.trigger.offset_ms
    back = index_row(schedule, first_ms - 1 + offset_ms, runs_left=runs_left)
    if back is not None:
        back = replace(back, version=1 if row is None else row.version)
    return replace(edit, schedule=schedule, row=back)


def _come_again(edit: Edit, come: Come, now_ms: int, runs_left: int | None) -> Edit:
    """Plan times that have come by themselves; no row is set back behind the edit.

    Between them and the edit the rule may have times that were never this schedule's, and others
    that the ledger has: a policy that saw them would choose one of those to run.
    """
    offset_ms = edit.schedule.definition.trigger.offset_ms
    active = replace(edit.schedule, state="active", error=None)
    back = index_row(active, come.times[0] - 1 + offset_ms, runs_left=runs_left)
    if back is None:
        return edit
    again, runs_left = plan_times(back, come, now_ms)
    edit = replace(edit, again=tuple(again))
    if runs_left == 0:
        return replace(edit, schedule=replace(active, state="finished"), row=None)
    row = None if edit.row is None else replace(edit.row, runs_left=runs_left)
    return replace(edit, row=row)


def _placed(
    schedule: Schedule, now_ms: int, runs_left: int | None
) -> tuple[Schedule, IndexRow | None]:
    """The schedule and its row after now; an active one without a next time has finished."""
    row = index_row(schedule, now_ms)
    if schedule.state == "active" and (row is None or runs_left == 0):
        finished: ScheduleState = "finished"
        return replace(schedule, state=finished), None
    return schedule, None if row is None else replace(row, runs_left=runs_left)


def _begins_after_ms(definition: Definition, stored: Stored, now_ms: int) -> int:
    """Where a row begins: with the edit, or where it was quarantined if the timing is as it was."""
    rests_at_ms = stored.rests_at_ms
    if rests_at_ms is None or _timing(definition) != _timing(stored.schedule.definition):
        return now_ms
    return rests_at_ms - 1 + definition.trigger.offset_ms


def _runs_left(definition: Definition, stored: Stored, withdrawn: int = 0) -> int | None:
    """Runs already had stay counted when the allowance changes; withdrawn ones were not had.

    Without a row (paused, or finished since the last runs were planned ahead) the ledger knows.
    """
    allowed = stored.schedule.definition.max_runs
    if definition.max_runs is None or allowed is None:
        return definition.max_runs
    used = stored.runs
    if stored.row is not None and stored.row.runs_left is not None:
        used = allowed - stored.row.runs_left
    return min(definition.max_runs, max(0, definition.max_runs - used + withdrawn))


def _timing(definition: Definition) -> tuple[object, ...]:
    return (definition.trigger, definition.enabled, definition.hand_over, definition.max_runs)


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
