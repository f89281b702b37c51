"""Schedules in memory: definition, index row and event, written together."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from duly.errors import Conflict
from duly.occurrences import IndexRow, index_row, is_overdue, policies_text, trigger_text
from duly.planning import Come, PlannedOccurrence, plan_times, taken_back, unplanned_times
from duly.schedules import (
    Definition,
    Schedule,
    ScheduleId,
    bind,
    binding_key,
    check,
    check_edit,
    rebind,
    state_of,
)
from duly.scopes import Scope, check_flow
from duly.store import (
    ABSENT,
    Document,
    Refused,
    ScheduleEvent,
    ScheduleKey,
    ScheduleWrite,
    ScheduleWritten,
)
from duly.stores.checks import SCHEDULES, check_limit, deleted
from duly.stores.memory import ledger
from duly.stores.memory.admitted import admitted
from duly.stores.memory.dispatches import plan_dispatches, put_free
from duly.stores.memory.documents import count, page, refusal, revised
from duly.stores.memory.hand_over import (
    Step,
    free_ones,
    hand_over,
    is_planned,
    new_job,
    source_of,
)
from duly.stores.memory.plans import plan_at_once
from duly.stores.memory.tables import (
    Stored,
    Tables,
    document_key,
    schedule_of,
)
from duly.stores.memory.withdrawals import still_had, withdraw, write_pause


def get(tables: Tables, key: ScheduleKey) -> Schedule | None:
    """Read one schedule."""
    stored = tables.documents.get(document_key(key))
    return None if stored is None else schedule_of(stored)


def find(tables: Tables, schedule_id: ScheduleId) -> Schedule | None:
    """Read one schedule by its id."""
    for place, stored in tables.documents.items():
        if place[0] == SCHEDULES and stored.document.id == schedule_id:
            return schedule_of(stored)
    return None


def list_page(tables: Tables, flow: str, scope: str, after: str, limit: int) -> list[Schedule]:
    """A scope's schedules by name."""
    documents = page(tables, SCHEDULES, scope, f"{flow}/", f"{flow}/{after}", limit)
    return [schedule_of(tables.documents[SCHEDULES, scope, each.name]) for each in documents]


def put(step: Step, write: ScheduleWrite) -> ScheduleWritten | Refused:
    """Store one definition with its row and its event; what it plans soon is planned."""
    tables = step.tables
    scope = checked_scope(write.key)
    earlier = tables.documents.get(document_key(write.key))
    refused = refusal(earlier, write.expected_version)
    if refused is None and earlier is None and scope.kind != "system":
        held = count(tables, SCHEDULES, write.key.scope)
        refused = Refused("full", held) if held >= write.limits.schedules else None
    if refused is not None:
        return refused
    if earlier is None:
        return _create(step, write, scope)
    return _change(step, write, earlier)


def checked_scope(key: ScheduleKey) -> Scope:
    """The scope of a key whose every part could be dispatched."""
    check_flow(key.flow)
    scope = Scope.parse(key.scope)
    binding_key(key.flow, scope, key.name)
    return scope


def _create(step: Step, write: ScheduleWrite, scope: Scope) -> ScheduleWritten:
    tables, now_ms, key = step.tables, step.now_ms, write.key
    if find(tables, write.id) is not None:
        raise Conflict(f"schedule id {write.id!r} is taken; make a new one for {key}")
    definition = bind(write.definition, binding_key(key.flow, scope, key.name), now_ms)
    check(definition, scope, write.limits, now_ms)
    body = definition.to_json()
    document = Document(*document_key(key), write.id, body, 1, now_ms, now_ms)
    stored, row = _with_row(Stored(document, state=state_of(definition)), now_ms, None)
    tables.documents[document_key(key)] = stored
    _replace_row(tables, key, row)
    tables.events.append(ScheduleEvent(write.id, "created", now_ms, write.by))
    return _planned(step, key, created=True)


def _change(step: Step, write: ScheduleWrite, stored: Stored) -> ScheduleWritten:
    tables, earlier = step.tables, schedule_of(stored)
    definition = rebind(write.definition, earlier.key, earlier.definition, step.now_ms)
    if definition.is_same(earlier.definition) and stored.state != "quarantined":
        return ScheduleWritten(earlier, _row_with_time(tables, write.key), created=False)
    check_edit(definition, earlier, write.limits, step.now_ms)
    return revise(step, write.key, stored, definition, write.by)


def revise(
    step: Step, key: ScheduleKey, stored: Stored, definition: Definition, by: str
) -> ScheduleWritten:
    """Store another definition of a schedule; it is bound and checked already."""
    tables, now_ms, earlier = step.tables, step.now_ms, schedule_of(stored)
    old = earlier.definition
    is_same = _deeds(definition).is_same(_deeds(old))
    if is_same and stored.state != "quarantined":
        return _reword(step, key, stored, definition, by)
    is_retimed = timing(definition) != timing(old)
    if definition.enabled and not old.enabled:
        write_pause(tables, now_ms, earlier)
    if is_retimed:
        # Times that have come belong to the old definition, planned or not yet.
        _plan_overdue(step, key)
        stored = tables.documents[document_key(key)]
        earlier = schedule_of(stored)
    because = "paused" if old.enabled and not definition.enabled else "changed"
    on_time = admitted(tables, earlier.id, now_ms)
    withdrawn = [] if is_same else withdraw(tables, now_ms, earlier.id, by, because=because)
    row = before = _row_with_time(tables, key)
    unplanned = unplanned_times(before, now_ms) if is_retimed and before else []
    kept = [ms for ms in unplanned if definition.trigger.next_after_ms(ms - 1) == ms]
    standing = sorted(still_had(withdrawn, definition.trigger) + kept)
    come = [ms for ms in standing if ms + definition.trigger.offset_ms <= now_ms]
    runs_left = _runs_left(tables, earlier, definition, row, len(withdrawn))
    stored = replace(stored, document=revised(stored.document, definition.to_json(), now_ms))
    rests = stored.state == "quarantined" or (stored.state == "finished" and bool(withdrawn))
    if is_retimed or rests:
        rested_at_ms = (
            None if is_retimed or key not in tables.errors else tables.rows[key].nominal_ms
        )
        stored, row = _anew(stored, runs_left, now_ms, rested_at_ms)
    elif row is not None:
        row = _gone_on(row, definition, runs_left)
    stored, row = _set_back(stored, row, standing[len(come) :], runs_left)
    is_last = row is None or not is_overdue(row, now_ms)
    on_time |= dict.fromkeys(kept)
    stored, row, again = _come_again(stored, row, Come(come, on_time, is_last), runs_left, now_ms)
    tables.documents[document_key(key)] = stored
    _replace_row(tables, key, row)
    tables.events.append(_change_event(earlier, definition, now_ms, by))
    _hand_again(step, schedule_of(stored), again)
    if before is not None and state_of(definition) == "active" and runs_left != 0:
        gone = [ms for ms in unplanned if ms not in kept]
        over = taken_back(before, gone, f"withdrawn: schedule {because}")
        hand_over(step, source_of(earlier), free_ones(tables, before.trigger, over), {})
    return _planned(step, key, created=False)


def _reword(
    step: Step, key: ScheduleKey, stored: Stored, definition: Definition, by: str
) -> ScheduleWritten:
    """Store other words of a schedule: they withdraw, move and plan nothing."""
    tables, earlier = step.tables, schedule_of(stored)
    stored = replace(stored, document=revised(stored.document, definition.to_json(), step.now_ms))
    tables.documents[document_key(key)] = stored
    _replace_row(tables, key, _row_with_time(tables, key))
    tables.events.append(_change_event(earlier, definition, step.now_ms, by))
    return ScheduleWritten(schedule_of(stored), _row_with_time(tables, key), created=False)


def _plan_overdue(step: Step, key: ScheduleKey) -> None:
    while (row := _row_with_time(step.tables, key)) and is_overdue(row, step.now_ms):
        if row.hand_over == "http":
            plan_dispatches(step.tables, step.now_ms, row)
        else:
            plan_at_once(step, row, look_ahead_ms=0)


def _deeds(definition: Definition) -> Definition:
    """What a definition does, without what it says of itself."""
    return msgspec.structs.replace(definition, description="", note="")


def _gone_on(row: IndexRow, definition: Definition, runs_left: int | None) -> IndexRow:
    """The row stays where it stood."""
    policies = definition.policies
    row = replace(row, priority=policies.priority, policies=policies_text(policies))
    return replace(row, runs_left=runs_left)


def _anew(
    stored: Stored, runs_left: int | None, now_ms: int, rested_at_ms: int | None
) -> tuple[Stored, IndexRow | None]:
    """The row begins after now, or where it came to before its quarantine."""
    definition = schedule_of(stored).definition
    stored = replace(stored, state=state_of(definition), error=None)
    if rested_at_ms is not None:
        return _with_row(stored, rested_at_ms - 1 + definition.trigger.offset_ms, runs_left)
    return _with_row(stored, now_ms, runs_left)


def _set_back(
    stored: Stored, row: IndexRow | None, to_come: list[int], runs_left: int | None
) -> tuple[Stored, IndexRow | None]:
    """Let a row begin with a withdrawn time to come that is before its own, if there is one."""
    schedule = schedule_of(stored)
    if not to_come or runs_left == 0 or state_of(schedule.definition) != "active":
        return stored, row
    if row is not None and row.nominal_ms <= to_come[0]:
        return stored, row
    schedule = replace(schedule, state="active")
    after_ms = to_come[0] + schedule.definition.trigger.offset_ms - 1
    back = index_row(schedule, after_ms, runs_left=runs_left)
    return replace(stored, state="active"), back


def _come_again(
    stored: Stored, row: IndexRow | None, come: Come, runs_left: int | None, now_ms: int
) -> tuple[Stored, IndexRow | None, list[PlannedOccurrence]]:
    """Plan withdrawn times that have come by themselves.

    Between them and now the definition may have times that the schedule never had, and others
    that the ledger has.
    """
    definition = schedule_of(stored).definition
    if not come.times or state_of(definition) != "active":
        return stored, row, []
    active = replace(schedule_of(stored), state="active")
    after_ms = come.times[0] + definition.trigger.offset_ms - 1
    back = index_row(active, after_ms)
    assert back is not None
    again, left = plan_times(replace(back, runs_left=runs_left), come, now_ms)
    if left == 0:
        return replace(stored, state="finished", error=None), None, again
    return stored, None if row is None else replace(row, runs_left=left), again


def _hand_again(step: Step, schedule: Schedule, again: list[PlannedOccurrence]) -> None:
    if not again:
        return
    if schedule.definition.hand_over == "http":
        offset_ms = schedule.definition.trigger.offset_ms
        active = replace(schedule, state="active")
        row = index_row(active, again[0].nominal_ms - 1 + offset_ms)
        assert row is not None
        put_free(step.tables, row, again)
        return
    source = source_of(schedule)
    again = free_ones(step.tables, trigger_text(schedule.definition.trigger), again)
    step.reserve(sum(is_planned(each) for each in again))
    jobs = {each.nominal_ms: new_job(step, source, each) for each in again if is_planned(each)}
    hand_over(step, source, again, jobs)


def _planned(step: Step, key: ScheduleKey, *, created: bool) -> ScheduleWritten:
    """Plan what a write brings soon; gives how it stands after that."""
    tables = step.tables
    stored = tables.documents[document_key(key)]
    step.bodies[stored.document.id] = stored.document.body
    plan_at_once(step, _row_with_time(tables, key))
    schedule = schedule_of(tables.documents[document_key(key)])
    return ScheduleWritten(schedule, _row_with_time(tables, key), created=created)


def timing(definition: Definition) -> tuple[object, ...]:
    """What decides when a schedule fires; an edit of anything else moves no hand."""
    return definition.trigger, definition.enabled, definition.hand_over, definition.max_runs


def _runs_left(
    tables: Tables, earlier: Schedule, new: Definition, row: IndexRow | None, withdrawn: int
) -> int | None:
    """What is left of a new max_runs after the runs that were had; withdrawn ones were not.

    Without a row (paused, or finished since the last runs were planned ahead) the ledger knows.
    """
    allowed = earlier.definition.max_runs
    if allowed is None or new.max_runs is None:
        return new.max_runs
    used = ledger.runs(tables, earlier.id)
    if row is not None and row.runs_left is not None:
        used = allowed - row.runs_left - withdrawn
    return min(new.max_runs, max(0, new.max_runs - used))


def _with_row(
    stored: Stored, after_ms: int, runs_left: int | None
) -> tuple[Stored, IndexRow | None]:
    """A schedule's row after an instant; an active one without a next time is finished."""
    row = None if runs_left == 0 else index_row(schedule_of(stored), after_ms, runs_left=runs_left)
    if stored.state == "active" and row is None:
        stored = replace(stored, state="finished")
    return stored, row


def _replace_row(tables: Tables, key: ScheduleKey, row: IndexRow | None) -> None:
    earlier = tables.rows.get(key)
    if row is None:
        tables.drop_row(key)
    else:
        tables.put_row(replace(row, version=1 if earlier is None else earlier.version + 1))


def _row_with_time(tables: Tables, key: ScheduleKey) -> IndexRow | None:
    return None if key in tables.errors else tables.rows.get(key)


def _change_event(earlier: Schedule, definition: Definition, now_ms: int, by: str) -> ScheduleEvent:
    old = earlier.definition
    detail: dict[str, object] = {}
    if definition.trigger != old.trigger:
        detail["trigger"] = old.trigger.to_json()
    if old.enabled == definition.enabled:
        return ScheduleEvent(earlier.id, "changed", now_ms, by, detail)
    if definition.enabled:
        return ScheduleEvent(earlier.id, "resumed", now_ms, by, detail)
    if definition.note:
        detail["note"] = definition.note
    return ScheduleEvent(earlier.id, "paused", now_ms, by, detail)


def delete(
    step: Step, key: ScheduleKey, expected_version: int | None, by: str
) -> Schedule | Refused:
    """Remove a schedule with its row; the ledger has every time that came, and its events stay."""
    stored = step.tables.documents.get(document_key(key))
    if stored is None:
        return Refused("absent", ABSENT)
    refused = refusal(stored, expected_version)
    if refused is not None:
        return refused
    step.bodies[stored.document.id] = stored.document.body
    _plan_overdue(step, key)
    return remove(step.tables, step.now_ms, key, by)


def remove(tables: Tables, now_ms: int, key: ScheduleKey, by: str) -> Schedule:
    """Delete a schedule that is there, whatever is due of it."""
    schedule = schedule_of(tables.documents.pop(document_key(key)))
    tables.drop_row(key)
    withdraw(tables, now_ms, schedule.id, by, because="deleted")
    tables.events.append(deleted(schedule, now_ms, by))
    return schedule


def events(tables: Tables, schedule_id: ScheduleId, limit: int) -> list[ScheduleEvent]:
    """The newest facts, oldest first."""
    check_limit(limit)
    return [event for event in tables.events if event.schedule_id == schedule_id][-limit:]
