"""Writing and deleting schedules: definition, index row and event in one transaction.

`rules.edits`, which is pure, decides what a write changes; this module reads and writes. A
schedule's index row is held before its definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from duly.engine.dispatch.dispatches import plan_dispatches, write_free
from duly.engine.kinds import (
    CHARGED,
    DOCUMENT_IDS,
    ROW,
    ROW_IDS,
    SCHEDULE,
    SCHEDULE_EVENTS,
    SCHEDULE_IDS,
    StoredRow,
    StoredSchedule,
    key_parts,
    row_key,
)
from duly.engine.schedules import ledger, quotas, withdrawals
from duly.engine.schedules.hand_over import hand_over, is_planned, new_jobs, source_of
from duly.engine.schedules.planning import plan_soon
from duly.engine.schedules.rows import is_due
from duly.engine.schedules.withdrawals import Why
from duly.engine.transaction import Tx
from duly.model.documents import ABSENT, Refused
from duly.model.index_rows import IndexRow, is_overdue, trigger_text
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule, ScheduleId, binding_key
from duly.model.scopes import Scope, check_flow
from duly.rules.checks import check_writes, delete_refusal, deleted, id_taken
from duly.rules.edits import Edit, Stored, Taken, plan_write, set_back, unplanned
from duly.rules.quotas import is_counted, may_need_room
from duly.rules.runs import known_runs

Edits = dict[ScheduleKey, Edit]
Standing = Mapping[ScheduleKey, Stored]


def get_schedule(tx: Tx, key: ScheduleKey) -> Schedule | None:
    """Return one schedule."""
    item = tx.peek(SCHEDULE, *key_parts(key))
    return None if item is None else item.schedule


def find_schedule(tx: Tx, schedule_id: ScheduleId) -> Schedule | None:
    """Return one schedule by its id."""
    keys = tx.find(SCHEDULE_IDS, schedule_id, limit=1)
    found = tx.peek_many(SCHEDULE, keys).values()
    return next((item.schedule for item in found if item.schedule.id == schedule_id), None)


def put_schedules(tx: Tx, writes: Sequence[ScheduleWrite]) -> list[ScheduleWritten | Refused]:
    """Store definitions with their index rows and events; return one answer per write, in order."""
    check_writes(writes)
    for write in writes:
        _check_key(write.key)
    answers: list[ScheduleWritten | Refused] = []
    for batch in _batches(writes):
        answers += _put_batch(tx, batch)
    return answers


def _check_key(key: ScheduleKey) -> None:
    """Raise InvalidInput for a key that could not be dispatched."""
    check_flow(key.flow)
    binding_key(key.flow, Scope.parse(key.scope), key.name)


def _batches(writes: Sequence[ScheduleWrite]) -> list[list[ScheduleWrite]]:
    """Split the writes, in order, so that no batch writes the same schedule twice."""
    batches: list[list[ScheduleWrite]] = []
    seen: set[ScheduleKey] = set()
    for write in writes:
        if not batches or write.key in seen:
            batches.append([])
            seen.clear()
        batches[-1].append(write)
        seen.add(write.key)
    return batches


def _put_batch(tx: Tx, writes: Sequence[ScheduleWrite]) -> list[ScheduleWritten | Refused]:
    while True:
        standing = read(tx, [write.key for write in writes])
        edits, refused = _decide(tx, writes, standing)
        overdue = [
            row
            for key, edit in edits.items()
            if edit.retimes and (row := standing[key].row) and is_overdue(row, tx.now_ms)
        ]
        if not overdue:
            break
        # Due times belong to the old definitions: plan them, then start over.
        withdrawals.unbegun_of(tx, [edit.before for edit in edits.values() if edit.before])
        _plan_overdue(tx, overdue)
    _refuse_taken_ids(tx, [write for write in writes if _is_new(edits, write)])
    edits = _take_back(tx, edits, standing)
    _write(tx, edits)
    for edit in edits.values():
        _hand_over_again(tx, edit)
    plan_soon(tx, [key for key, edit in edits.items() if edit.moves])
    found = read(tx, [write.key for write in writes if write.key not in refused])
    return [
        refused.get(write.key)
        or ScheduleWritten(
            found[write.key].schedule, found[write.key].row, created=write.key not in standing
        )
        for write in writes
    ]


def read(tx: Tx, keys: Sequence[ScheduleKey]) -> dict[ScheduleKey, Stored]:
    """Return and hold the schedules stored under keys: rows before definitions."""
    rows = tx.get_many(ROW, map(key_parts, keys))
    schedules = tx.get_many(SCHEDULE, map(key_parts, keys))
    found: dict[ScheduleKey, Stored] = {}
    for key in keys:
        item = schedules.get(key_parts(key))
        if item is None:
            continue
        row = rows.get(key_parts(key))
        if row is None or row.row.schedule_id != item.schedule.id:
            found[key] = Stored(item.schedule, None)
        elif row.error is None:
            found[key] = Stored(item.schedule, row.row)
        else:
            found[key] = Stored(item.schedule, None, rests_at_ms=row.row.nominal_ms)
    return _with_counts(tx, found)


def _with_counts(tx: Tx, found: Standing) -> dict[ScheduleKey, Stored]:
    """Return the schedules with run counts for those that have `max_runs`."""
    uncounted = [
        (each.schedule.id,)
        for each in found.values()
        if each.schedule.runs_had is None
        and each.row is None
        and each.schedule.definition.max_runs is not None
    ]
    in_ledger = tx.count_many(CHARGED, uncounted)
    counted: dict[ScheduleKey, Stored] = {}
    for key, each in found.items():
        row_left = None if each.row is None else each.row.runs_left
        had = known_runs(each.schedule, row_left, in_ledger.get((each.schedule.id,), 0))
        counted[key] = replace(each, schedule=replace(each.schedule, runs_had=had))
    return counted


def _decide(
    tx: Tx, writes: Sequence[ScheduleWrite], standing: Standing
) -> tuple[Edits, dict[ScheduleKey, Refused]]:
    """Return the edits that writes make, and the refusals, by key."""
    held = quotas.holdings(tx, _needing_room(writes, standing))
    edits: Edits = {}
    refused: dict[ScheduleKey, Refused] = {}
    for write in writes:
        before = standing.get(write.key)
        edit = plan_write(write, before, held, tx.now_ms)
        if isinstance(edit, Refused):
            refused[write.key] = edit
        elif edit.event is not None:
            counted = is_counted(None if before is None else before.schedule)
            held.add(write.key, is_counted(edit.schedule) - counted)
            edits[write.key] = edit
    return edits, refused


def _needing_room(writes: Sequence[ScheduleWrite], standing: Standing) -> list[ScheduleWrite]:
    """Return the writes that may count against the limits of their owners."""
    found = {key: each.schedule for key, each in standing.items()}
    return [write for write in writes if may_need_room(write, found.get(write.key))]


def _is_new(edits: Edits, write: ScheduleWrite) -> bool:
    edit = edits.get(write.key)
    return edit is not None and edit.before is None


def _refuse_taken_ids(tx: Tx, creations: Sequence[ScheduleWrite]) -> None:
    """Raise Conflict if a new schedule's id belongs to another schedule, document or index row."""
    if not creations:
        return
    written = tx.changes(SCHEDULE).values()
    made = {change.after.schedule.id for change in written if change.after is not None}
    for write in creations:
        if write.id in made or _is_taken(tx, write):
            key = write.key
            raise id_taken(write.id, f"schedule {key.flow}/{key.scope}/{key.name}")
        made.add(write.id)


def _is_taken(tx: Tx, write: ScheduleWrite) -> bool:
    if tx.is_taken(DOCUMENT_IDS, write.id) or tx.is_taken(SCHEDULE_IDS, write.id):
        return True
    # A row under the schedule's own key will be overwritten, so it does not count.
    keys = tx.find(ROW_IDS, write.id) if tx.is_taken(ROW_IDS, write.id) else []
    return any(key != key_parts(write.key) for key in keys)


def _plan_overdue(tx: Tx, rows: Sequence[IndexRow]) -> None:
    """Write the due times of rows to the ledger, for the hand-overs `jobs` and `http`."""
    keys = [row_key(row) for row in rows]
    plan_soon(tx, keys, look_ahead_ms=0)
    items = tx.get_many(ROW, map(key_parts, keys)).values()
    plan_dispatches(tx, [each for each in items if is_due(each, "http", tx.now_ms)])


def _take_back(tx: Tx, edits: Edits, standing: Standing) -> Edits:
    """Withdraw what the old definitions planned; return the edits with their rows moved back."""
    old = [edit.before for edit in edits.values() if edit.withdraws and edit.before is not None]
    unbegun = withdrawals.unbegun_of(tx, old)
    after: Edits = {}
    for key, edit in edits.items():
        own = unbegun.get(edit.schedule.id)
        after[key] = edit
        if own is None or edit.event is None or edit.before is None:
            continue
        admitted = withdrawals.admitted(tx, own)
        why = Why(f"withdrawn: schedule {edit.event.kind}", edit.event.by)
        times = withdrawals.withdraw(tx, edit.schedule.id, own, why)
        if edit.resumes:
            withdrawals.write_pause(tx, edit.before)
        left = unplanned(edit, standing[key], tx.now_ms)
        if times or left:
            after[key] = set_back(edit, Taken(times, admitted, left), standing[key])
    return after


def _write(tx: Tx, edits: Edits) -> None:
    """Write rows, definitions and events."""
    for key, edit in edits.items():
        _write_row(tx, key, edit.row)
        schedule = edit.schedule
        finished_at_ms = schedule.updated_at_ms if schedule.state == "finished" else None
        tx.put(SCHEDULE, StoredSchedule(schedule, finished_at_ms))
        if edit.event is not None:
            tx.append(SCHEDULE_EVENTS, edit.event)


def _write_row(tx: Tx, key: ScheduleKey, row: IndexRow | None) -> None:
    """Write or remove (None) the row of a key, replacing any row there, even a quarantined one."""
    standing = tx.get(ROW, *key_parts(key))
    if row is None:
        if standing is not None:
            tx.delete(ROW, *key_parts(key))
        return
    if standing is None:
        # A row that ended in this transaction passes on its version, so versions always grow.
        standing = tx.before(ROW, *key_parts(key))
    if standing is None:
        tx.put(ROW, StoredRow(replace(row, version=1)))
    else:
        row = replace(row, version=standing.row.version + 1)
        tx.put(ROW, standing._replace(row=row, error=None, not_found=0))


def _hand_over_again(tx: Tx, edit: Edit) -> None:
    """Hand over again the due occurrences that this edit withdrew."""
    if not edit.again:
        return
    schedule = edit.schedule
    source = source_of(schedule)
    free = ledger.free_ones(tx, trigger_text(schedule.definition.trigger), edit.again)
    if schedule.definition.hand_over == "http":
        write_free(tx, source, free)
        return
    ids = tx.new_ids("job_", sum(is_planned(each) for each in free))
    hand_over(tx, source, free, new_jobs(tx, source, free, ids))


def delete_schedule(
    tx: Tx, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
) -> Schedule | Refused:
    """Remove a schedule and its row, and withdraw runs not begun; return it, or the refusal.

    The ledger and the events stay.
    """
    found = read(tx, [key]).get(key)
    refusal = delete_refusal(expected_version, ABSENT if found is None else found.schedule.version)
    if refusal is not None or found is None:
        return refusal or Refused("absent", ABSENT)
    withdrawals.unbegun_of(tx, [found.schedule])
    while found.row is not None and is_overdue(found.row, tx.now_ms):
        # Due times are planned first, so that the ledger has them, and then withdrawn.
        _plan_overdue(tx, [found.row])
        found = read(tx, [key])[key]
    return remove_schedule(tx, key, by)


def remove_schedule(tx: Tx, key: ScheduleKey, by: str, *, is_notified: bool = True) -> Schedule:
    """Remove a stored schedule without planning its due times; return it as it was.

    If not `is_told`, no event is recorded.
    """
    schedule = read(tx, [key])[key].schedule
    own = withdrawals.unbegun_of(tx, [schedule])[schedule.id]
    why = Why("withdrawn: schedule deleted", by)
    withdrawals.withdraw(tx, schedule.id, own, why, extras=True)
    _write_row(tx, key, None)
    tx.delete(SCHEDULE, *key_parts(key))
    if is_notified:
        tx.append(SCHEDULE_EVENTS, deleted(schedule, tx.now_ms, by))
    return schedule
