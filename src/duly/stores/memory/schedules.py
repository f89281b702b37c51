"""Schedules in memory: definition, index row and event, written together."""

from __future__ import annotations

from dataclasses import replace

from duly.occurrences import (
    IndexRow,
    index_row,
    is_overdue,
    next_nominal_ms,
    policies_text,
    trigger_text,
)
from duly.planning import Come, PlannedOccurrence, plan_times, taken_back, unplanned_times
from duly.runs import known_runs, runs_after_edit, runs_left
from duly.schedules import (
    Definition,
    Schedule,
    ScheduleId,
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
from duly.stores.checks import (
    SCHEDULES,
    check_limit,
    delete_refusal,
    deleted,
    id_taken,
    write_refusal,
)
from duly.stores.memory.admitted import admitted
from duly.stores.memory.dispatches import plan_dispatches, put_free
from duly.stores.memory.documents import has_id, page, revised, version_of
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
from duly.stores.quotas import COUNTED, Holdings, refuse_full, timing


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
    refused = write_refusal(write.expected_version, version_of(earlier))
    if refused is not None:
        return refused
    if earlier is None:
        return refuse_full(write, None, _holdings(tables, write)) or _create(step, write, scope)
    return _change(step, write, earlier)


def _holdings(tables: Tables, write: ScheduleWrite) -> Holdings:
    """Count the schedules of a write's owner."""
    held = Holdings()
    for (collection, scope, name), stored in tables.documents.items():
        if collection == SCHEDULES and scope == write.key.scope and stored.state in COUNTED:
            flow, _, own = name.partition("/")
            held.add(ScheduleKey(flow, scope, own), 1)
    return held


def checked_scope(key: ScheduleKey) -> Scope:
    """The scope of a key whose every part could be dispatched."""
    check_flow(key.flow)
    scope = Scope.parse(key.scope)
    binding_key(key.flow, scope, key.name)
    return scope


def _create(step: Step, write: ScheduleWrite, scope: Scope) -> ScheduleWritten:
    tables, now_ms, key = step.tables, step.now_ms, write.key
    definition = bind(write.definition, binding_key(key.flow, scope, key.name), now_ms)
    check(definition, scope, write.limits, now_ms)
    if has_id(tables, write.id) or tables.has_row_of(write.id, besides=key):
        raise id_taken(write.id, f"schedule {key.flow}/{key.scope}/{key.name}")
    body = definition.to_json()
    document = Document(*document_key(key), write.id, body, 1, now_ms, now_ms)
    had = None if definition.max_runs is None else 0
    begun = Stored(document, state=state_of(definition), runs_had=had)
    begins_ms = first_after_ms(definition, now_ms)
    stored, row = _with_row(begun, begins_ms, definition.max_runs)
    tables.documents[document_key(key)] = stored
    _replace_row(tables, key, row)
    tables.events.append(ScheduleEvent(write.id, "created", now_ms, write.by))
    return _planned(step, key, created=True)


def _change(step: Step, write: ScheduleWrite, stored: Stored) -> ScheduleWritten | Refused:
    tables, earlier = step.tables, schedule_of(stored)
    definition = rebind(write.definition, earlier.key, earlier.definition, step.now_ms)
    if definition.is_same(earlier.definition) and stored.state != "quarantined":
        return ScheduleWritten(earlier, _row_with_time(tables, write.key), created=False)
    is_retimed = timing(definition) != timing(earlier.definition)
    held = _holdings(tables, write)
    refused = refuse_full(write, earlier, held, is_retimed=is_retimed)
    if refused is not None:
        return refused
    check_edit(definition, earlier, write.limits, step.now_ms)
    return revise(step, write.key, stored, definition, write.by)


def revise(
    step: Step, key: ScheduleKey, stored: Stored, definition: Definition, by: str
) -> ScheduleWritten:
    """Store another definition of a schedule; it is bound and checked already."""
    tables, now_ms, earlier = step.tables, step.now_ms, schedule_of(stored)
    old = earlier.definition
    is_same = without_words(definition).is_same(without_words(old))
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
    had = _runs_had(earlier, definition, row, len(withdrawn))
    left = runs_left(definition.max_runs, had)
    body = definition.to_json()
    stored = replace(stored, document=revised(stored.document, body, now_ms), runs_had=had)
    rests = stored.state == "quarantined" or (stored.state == "finished" and bool(withdrawn))
    if is_retimed or rests:
        rested_at_ms = (
            None if is_retimed or key not in tables.errors else tables.rows[key].nominal_ms
        )
        is_new = definition.trigger != old.trigger
        after_ms = first_after_ms(definition, now_ms) if is_new else now_ms
        stored, row = _anew(stored, left, after_ms, rested_at_ms)
    elif row is not None:
        row = _gone_on(row, definition, left)
    stored, row = _set_back(stored, row, standing[len(come) :], left)
    is_last = row is None or not is_overdue(row, now_ms)
    on_time |= dict.fromkeys(kept)
    stored, row, again = _come_again(stored, row, Come(come, on_time, is_last), left, now_ms)
    tables.documents[document_key(key)] = stored
    _replace_row(tables, key, row)
    tables.events.append(_change_event(earlier, definition, now_ms, by))
    _hand_again(step, schedule_of(stored), again)
    if before is not None and is_indexed(definition) and left != 0:
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
            plan_dispatches(step.tables, step.now_ms, row, step.settings)
        else:
            plan_at_once(step, row, look_ahead_ms=0)


def _gone_on(row: IndexRow, definition: Definition, left: int | None) -> IndexRow:
    """The row stays where it stood."""
    policies = definition.policies
    row = replace(row, priority=policies.priority, policies=policies_text(policies))
    return replace(row, runs_left=left)


def _anew(
    stored: Stored, left: int | None, after_ms: int, rested_at_ms: int | None
) -> tuple[Stored, IndexRow | None]:
    """The row begins after an instant, or where it came to before its quarantine."""
    definition = schedule_of(stored).definition
    stored = replace(stored, state=state_of(definition), error=None)
    if rested_at_ms is not None:
        return _with_row(stored, rested_at_ms - 1 + definition.trigger.offset_ms, left)
    return _with_row(stored, after_ms, left)


def _set_back(
    stored: Stored, row: IndexRow | None, to_come: list[int], left: int | None
) -> tuple[Stored, IndexRow | None]:
    """Let a row begin with a withdrawn time to come that is before its own, if there is one."""
    schedule = schedule_of(stored)
    if not to_come or left == 0 or not is_indexed(schedule.definition):
        return stored, row
    if row is not None and row.nominal_ms <= to_come[0]:
        return stored, row
    schedule = replace(schedule, state="active")
    after_ms = to_come[0] + schedule.definition.trigger.offset_ms - 1
    back = index_row(schedule, after_ms, runs_left=left)
    return replace(stored, state="active"), back


def _come_again(
    stored: Stored, row: IndexRow | None, come: Come, before: int | None, now_ms: int
) -> tuple[Stored, IndexRow | None, list[PlannedOccurrence]]:
    """Plan withdrawn times that have come by themselves.

    Between them and now the definition may have times that the schedule never had, and others
    that the ledger has.
    """
    definition = schedule_of(stored).definition
    if not come.times or not is_indexed(definition):
        return stored, row, []
    active = replace(schedule_of(stored), state="active")
    after_ms = come.times[0] + definition.trigger.offset_ms - 1
    back = index_row(active, after_ms)
    assert back is not None
    again, left = plan_times(replace(back, runs_left=before), come, now_ms)
    if before is not None and left is not None:
        stored = replace(stored, runs_had=(stored.runs_had or 0) + before - left)
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
        put_free(step.tables, row, again, step.settings)
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


def _runs_had(
    earlier: Schedule, new: Definition, row: IndexRow | None, withdrawn: int
) -> int | None:
    """The count of runs after an edit."""
    had = known_runs(earlier, None if row is None else row.runs_left)
    return runs_after_edit(earlier.definition, had, new, withdrawn)


def _with_row(stored: Stored, after_ms: int, left: int | None) -> tuple[Stored, IndexRow | None]:
    """A schedule's row after an instant; one without a next time or a run left is finished."""
    schedule = schedule_of(stored)
    next_ms = next_nominal_ms(schedule.definition.trigger, after_ms)
    if stored.state == "active" and (next_ms is None or left == 0):
        return replace(stored, state="finished"), None
    return stored, index_row(schedule, after_ms, runs_left=left)


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
    refused = delete_refusal(expected_version, version_of(stored))
    if refused is not None or stored is None:
        return refused or Refused("absent", ABSENT)
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
