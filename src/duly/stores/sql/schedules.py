"""Stations 2 and 3: definitions and their index rows, written in one transaction.

The index row is locked and written before the document: the lock order everywhere. What a write
means is decided by `edits`, which is pure; the verb reads, asks, and writes the answers in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Row, and_, delete, select, tuple_

from duly.ids import new_ids
from duly.jobs import JobId, NewJob
from duly.occurrences import is_overdue
from duly.runs import known_runs
from duly.schedules import Definition, HandOver, Schedule, ScheduleId, state_of
from duly.scopes import Scope, check_flow
from duly.store import (
    ABSENT,
    Refused,
    ScheduleEvent,
    ScheduleKey,
    ScheduleWrite,
    ScheduleWritten,
)
from duly.stores.checks import (
    SCHEDULES,
    check_limit,
    check_writes,
    delete_refusal,
    deleted,
    id_taken,
)
from duly.stores.quotas import is_counted, may_need_room
from duly.stores.sql import events, ledger, rows
from duly.stores.sql.admitted import admitted
from duly.stores.sql.bulk import chunks, insert_all, update_all
from duly.stores.sql.db import Db, LostRace
from duly.stores.sql.dispatches import dispatch_entries, plan_dispatches
from duly.stores.sql.documents import refuse_taken_ids
from duly.stores.sql.edits import Edit, Stored, Taken, plan_write, set_back, unplanned
from duly.stores.sql.hand_over import hand_over, jobs_of, key_of
from duly.stores.sql.plans import plan_at_once
from duly.stores.sql.quotas import holdings
from duly.stores.sql.runs import count_ledger
from duly.stores.sql.withdrawals import Why, withdraw, write_pause


def get_schedule(db: Db, key: ScheduleKey) -> Schedule | None:
    """Read one schedule."""
    table = db.tables.resources
    statement = select(table).where(
        table.c.collection == SCHEDULES,
        table.c.scope == key.scope,
        table.c.name == document_name(key),
    )
    found = db.connection.execute(statement).first()
    return None if found is None else schedule_of(found)


def find_schedule(db: Db, schedule_id: ScheduleId) -> Schedule | None:
    """Read one schedule by its id."""
    table = db.tables.resources
    statement = select(table).where(table.c.id == schedule_id, table.c.collection == SCHEDULES)
    found = db.connection.execute(statement).first()
    return None if found is None else schedule_of(found)


class Held(NamedTuple):
    """A schedule whose row, if it has one, and document are ours until the transaction ends."""

    stored: Stored
    row_id: int | None


def hold_schedule(db: Db, schedule_id: ScheduleId) -> Schedule | None:
    """Read one schedule and hold its row and document: nobody plans or changes it meanwhile."""
    held = hold(db, schedule_id)
    return None if held is None else held.stored.schedule


def hold(db: Db, schedule_id: ScheduleId) -> Held | None:
    """The same, with its row."""
    seen = find_schedule(db, schedule_id)
    if seen is None:
        return None
    key = key_of(seen)
    stored, numbers = _read(db, [key])
    if not numbers and db.connection.execute(rows.whole(db).where(rows.under(db, [key]))).first():
        # A resume brought it while we waited for the document; the row comes first.
        raise LostRace(f"{key} got its index row while it was asked for")
    found = stored.get(key)
    if found is None or found.schedule.id != schedule_id:
        return None
    return Held(found, numbers.get(key))


def list_schedules(
    db: Db, flow: str, scope: str, *, after: str = "", limit: int = 100
) -> list[Schedule]:
    """One page of a scope's schedules by name."""
    check_limit(limit)
    table = db.tables.resources
    statement = (
        select(table)
        .where(
            table.c.collection == SCHEDULES,
            table.c.scope == scope,
            table.c.name > f"{flow}/{after}",
            table.c.name < f"{flow}0",  # "0" is what follows "/"
        )
        .order_by(table.c.name)
        .limit(limit)
    )
    return [schedule_of(row) for row in db.connection.execute(statement)]


def put_schedules(db: Db, writes: Sequence[ScheduleWrite]) -> list[ScheduleWritten | Refused]:
    """Store definitions with their index rows and events."""
    check_writes(writes)
    for write in writes:
        check_flow(write.key.flow)
    now_ms = db.now_ms()
    answers: list[ScheduleWritten | Refused] = []
    for batch in _batches(writes):
        answers += _put_batch(db, batch, now_ms)
    return answers


def _batches(writes: Sequence[ScheduleWrite]) -> list[list[ScheduleWrite]]:
    """The writes in order, cut so that no batch writes the same schedule twice."""
    batches: list[list[ScheduleWrite]] = []
    seen: set[ScheduleKey] = set()
    for write in writes:
        if not batches or write.key in seen:
            batches.append([])
            seen.clear()
        batches[-1].append(write)
        seen.add(write.key)
    return batches


def _put_batch(
    db: Db, writes: Sequence[ScheduleWrite], now_ms: int
) -> list[ScheduleWritten | Refused]:
    stored, numbers = _read(db, [write.key for write in writes])
    held = holdings(db, _needing_room(writes, stored))
    answers: list[ScheduleWritten | Refused] = []
    batch = _Batch(numbers, stored)
    for write in writes:
        before = stored.get(write.key)
        edit = plan_write(write, before, held, now_ms)
        if isinstance(edit, Refused):
            answers.append(edit)
            continue
        counted = is_counted(None if before is None else before.schedule)
        held.add(write.key, is_counted(edit.schedule) - counted)
        batch.add(write.key, edit)
        answers.append(ScheduleWritten(edit.schedule, edit.row, created=before is None))
    if db.is_retry:
        _refuse_taken_ids(db, [each for each in writes if batch.creates(each.key)])
    overdue = batch.overdue(now_ms)
    if overdue:
        # Times that have come belong to the old definitions: plan them, then begin anew.
        _plan_overdue(db, overdue, now_ms)
        return _put_batch(db, writes, now_ms)
    return _as_they_stand(db, answers, batch.write(db, now_ms))


def _refuse_taken_ids(db: Db, creations: Sequence[ScheduleWrite]) -> None:
    """Raise Conflict if another schedule, document or index row has the id of a new schedule."""
    names: dict[str, str] = {}
    for write in creations:
        whose = f"schedule {write.key.flow}/{write.key.scope}/{write.key.name}"
        if names.setdefault(write.id, whose) != whose:
            raise id_taken(write.id, whose)
    refuse_taken_ids(db, names)
    rules = db.tables.schedule_rules
    keys = {write.id: write.key for write in creations}
    for chunk in chunks(list(keys)):
        statement = select(rules.c.schedule_id, rules.c.flow, rules.c.scope, rules.c.name)
        for row in db.connection.execute(statement.where(rules.c.schedule_id.in_(chunk))):
            if ScheduleKey(row.flow, row.scope, row.name) != keys[row.schedule_id]:
                raise id_taken(row.schedule_id, names[row.schedule_id])


def _needing_room(
    writes: Sequence[ScheduleWrite], stored: Mapping[ScheduleKey, Stored]
) -> list[ScheduleWrite]:
    """Return the writes that the limits of their owners may have to be asked for."""
    found = {key: each.schedule for key, each in stored.items()}
    return [write for write in writes if may_need_room(write, found.get(write.key))]


def _as_they_stand(
    db: Db, answers: Sequence[ScheduleWritten | Refused], moved: Sequence[ScheduleKey]
) -> list[ScheduleWritten | Refused]:
    """The answers, with what withdrawing or planning at once made of the rows."""
    if not moved:
        return list(answers)
    now, _ = _read(db, moved)
    standing = {each.schedule.id: each for each in now.values()}
    return [
        answer
        if isinstance(answer, Refused) or answer.schedule.id not in standing
        else ScheduleWritten(
            standing[answer.schedule.id].schedule, standing[answer.schedule.id].row, answer.created
        )
        for answer in answers
    ]


def delete_schedule(
    db: Db, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
) -> Schedule | Refused:
    """Remove row and document, and what has not begun; the ledger and the events stay."""
    now_ms = db.now_ms()
    found = _read(db, [key])[0].get(key)
    refusal = delete_refusal(expected_version, ABSENT if found is None else found.schedule.version)
    if refusal is not None or found is None:
        return refusal or Refused("absent", ABSENT)
    while found.row is not None and is_overdue(found.row, now_ms):
        # Times that have come are planned, so that the ledger has them, and then withdrawn.
        _plan_overdue(db, [found.schedule.id], now_ms)
        found = _read(db, [key])[0][key]
    return remove_schedule(db, key, now_ms, by)


def _plan_overdue(db: Db, schedule_ids: Sequence[ScheduleId], now_ms: int) -> None:
    """Let the ledger have times that have come, whoever was to hand them over."""
    plan_at_once(db, schedule_ids, now_ms, look_ahead_ms=0)
    plan_dispatches(db, schedule_ids, now_ms)


def remove_schedule(db: Db, key: ScheduleKey, now_ms: int, by: str) -> Schedule:
    """Delete a schedule that is there, whatever is due of it."""
    stored, numbers = _read(db, [key])
    found = stored[key]
    why = {found.schedule.id: Why("withdrawn: schedule deleted", by)}
    withdraw(db, why, posted=_posted([found.schedule]), extras=True)
    rows.remove(db, list(numbers.values()))
    table = db.tables.resources
    db.connection.execute(delete(table).where(table.c.id == found.schedule.id))
    events.append(db, [deleted(found.schedule, now_ms, by)])
    return found.schedule


class _Batch:
    """Edits gathered per table, so that many schedules cost a few statements."""

    def __init__(
        self, numbers: dict[ScheduleKey, int], stored: Mapping[ScheduleKey, Stored]
    ) -> None:
        self._numbers = numbers
        self._stored = stored
        self._after: dict[ScheduleKey, Edit] = {}
        self._events: list[ScheduleEvent] = []

    def add(self, key: ScheduleKey, edit: Edit) -> None:
        if edit.event is not None:
            self._after[key] = edit
            self._events.append(edit.event)

    def creates(self, key: ScheduleKey) -> bool:
        """Return whether a schedule of this key is to be stored that was not there."""
        return key in self._after and key not in self._stored

    def overdue(self, now_ms: int) -> list[ScheduleId]:
        """Schedules that change while a time that has come waits for a planner."""
        changing = [key for key, edit in self._after.items() if edit.retimes]
        rows = [row for key in changing if (row := self._stored[key].row) is not None]
        return [row.schedule_id for row in rows if is_overdue(row, now_ms)]

    def write(self, db: Db, now_ms: int) -> list[ScheduleKey]:
        """What was planned is withdrawn, then rows, documents and events, then the next plans.

        Gives the keys of schedules that do not stand as their edits said.
        """
        moved = self._withdraw(db, now_ms)
        self._write_rows(db)
        table = db.tables.resources
        documents = {key: document_values(edit.schedule) for key, edit in self._after.items()}
        insert_all(db, table, [each for k, each in documents.items() if k not in self._stored])
        update_all(db, table, "id", [each for k, each in documents.items() if k in self._stored])
        events.append(db, self._events)
        _plan_again(db, self._after.values(), now_ms)
        soon = self._soon(now_ms + db.planning.look_ahead_ms)
        plan_at_once(db, [self._after[key].schedule.id for key in soon], now_ms)
        return moved + soon

    def _withdraw(self, db: Db, now_ms: int) -> list[ScheduleKey]:
        """Take back what the old definitions planned; gives the keys whose rows were set back."""
        whys = {
            edit.schedule.id: Why(f"withdrawn: schedule {edit.event.kind}", edit.event.by)
            for edit in self._after.values()
            if edit.withdraws and edit.event is not None
        }
        if not whys:
            return []
        old = [each.before for each in self._after.values() if each.schedule.id in whys]
        posted = _posted(each for each in old if each is not None)
        reasons = admitted(db, list(whys), posted, now_ms)
        times = withdraw(db, whys, posted=posted)
        for edit in self._after.values():
            if edit.resumes and edit.before is not None:
                write_pause(db, edit.before, now_ms)
        back = []
        for key, edit in self._after.items():
            own, stored = edit.schedule.id, self._stored.get(key)
            left = unplanned(edit, stored, now_ms)
            if own in times or left:
                taken = Taken(times.get(own, ()), reasons.get(own, {}), left)
                self._after[key] = set_back(edit, taken, stored)
                back.append(key)
        return back

    def _soon(self, until_ms: int) -> list[ScheduleKey]:
        """Schedules whose next time comes so soon that no planner would be in time."""
        return [
            key
            for key, edit in self._after.items()
            if edit.moves
            and edit.row is not None
            and edit.row.hand_over == "jobs"
            and edit.row.run_at_ms <= until_ms
        ]

    def _write_rows(self, db: Db) -> None:
        """What stands under a key is written over, also when it is quarantined or foreign."""
        numbers = self._numbers
        after = {key: edit.row for key, edit in self._after.items()}
        rows.remove(db, [numbers[key] for key, row in after.items() if not row and key in numbers])
        wanted = {key: row for key, row in after.items() if row is not None}
        rows.insert(db, [row for key, row in wanted.items() if key not in numbers])
        rows.update(db, [(numbers[key], row) for key, row in wanted.items() if key in numbers])


def _plan_again(db: Db, edits: Iterable[Edit], now_ms: int) -> None:
    """Hand over what was withdrawn and had come, before what is still to come."""
    entries: list[ledger.Entry] = []
    posts: list[ledger.Entry] = []
    jobs: list[NewJob] = []
    for edit in [each for each in edits if each.again]:
        key = key_of(edit.schedule)
        if edit.schedule.definition.hand_over == "http":
            definition = edit.schedule.definition
            action = f"{edit.schedule.flow}.{definition.action}"
            delivery = db.planning.options(action, definition.policies).delivery
            posts += dispatch_entries(key, delivery, edit.again, now_ms)
            continue
        own = [
            ledger.entry_of(each, key, now_ms, JobId(job_id))
            for each, job_id in zip(edit.again, new_ids("job_", len(edit.again)), strict=True)
        ]
        entries += own
        jobs += jobs_of(db, edit.schedule, own)
    if entries:
        hand_over(db.at(now_ms), entries, jobs)
    ledger.write(db, posts)


def _posted(schedules: Iterable[Schedule]) -> list[ScheduleId]:
    """Those whose times ticks post."""
    return [each.id for each in schedules if each.definition.hand_over == "http"]


def _read(
    db: Db, keys: Sequence[ScheduleKey]
) -> tuple[dict[ScheduleKey, Stored], dict[ScheduleKey, int]]:
    """What is stored under the keys, rows locked before documents; and the numbers of the rows."""
    table = db.tables.resources
    found: dict[ScheduleKey, Stored] = {}
    numbers: dict[ScheduleKey, int] = {}
    for chunk in chunks(keys):
        standing = {
            ScheduleKey(row.flow, row.scope, row.name): row
            for row in rows.locked(db, rows.under(db, chunk))
        }
        numbers |= {key: row.row_id for key, row in standing.items()}
        by_name = and_(
            table.c.collection == SCHEDULES,
            tuple_(table.c.scope, table.c.name).in_(
                [(key.scope, document_name(key)) for key in chunk]
            ),
        )
        for document in db.connection.execute(select(table).where(by_name).with_for_update()):
            schedule = schedule_of(document)
            key = ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)
            row = standing.get(key)
            if row is None or row.schedule_id != schedule.id:
                found[key] = Stored(schedule, None)
            elif row.error is None:
                found[key] = Stored(schedule, rows.row_of(row))
            else:
                found[key] = Stored(schedule, None, rests_at_ms=row.nominal_ms)
    return _counted(db, found), numbers


def _counted(db: Db, found: Mapping[ScheduleKey, Stored]) -> dict[ScheduleKey, Stored]:
    """The same with the count of runs of those that have a limit."""
    unknown = [
        each.schedule.id
        for each in found.values()
        if each.schedule.runs_had is None
        and each.row is None
        and each.schedule.definition.max_runs is not None
    ]
    in_ledger = count_ledger(db, unknown)
    counted = dict(found)
    for key, each in found.items():
        row_left = None if each.row is None else each.row.runs_left
        had = known_runs(each.schedule, row_left, in_ledger.get(each.schedule.id, 0))
        if had != each.schedule.runs_had:
            counted[key] = replace(each, schedule=replace(each.schedule, runs_had=had))
    return counted


def document_name(key: ScheduleKey) -> str:
    """How a schedule is named among the documents of its scope."""
    return f"{key.flow}/{key.name}"


def document_values(schedule: Schedule) -> dict[str, Any]:
    """A schedule as columns of its document."""
    return {
        "collection": SCHEDULES,
        "scope": str(schedule.scope),
        "name": f"{schedule.flow}/{schedule.name}",
        "id": schedule.id,
        "version": schedule.version,
        "state": schedule.state,
        "error": schedule.error,
        "runs_had": schedule.runs_had,
        "body": schedule.definition.to_json(),
        "created_at_ms": schedule.created_at_ms,
        "updated_at_ms": schedule.updated_at_ms,
        "hand_over": stored_hand_over(schedule.definition.hand_over),
        "finished_at_ms": schedule.updated_at_ms if schedule.state == "finished" else None,
        "temporary": 1 if schedule.definition.delete_after_completion else None,
    }


def stored_hand_over(hand_over: HandOver) -> HandOver | None:
    """Return the value of column `hand_over`, which only schedules of another one than `jobs` have.

    So its index stays small, and what releases before the column wrote is right.
    """
    return None if hand_over == "jobs" else hand_over


def schedule_of(row: Row[Any]) -> Schedule:
    """The schedule of its document's columns."""
    flow, _, name = row.name.partition("/")
    definition = Definition.parse(row.body)
    return Schedule(
        id=row.id,
        flow=flow,
        scope=Scope.parse(row.scope),
        name=name,
        definition=definition,
        # Releases before schema version 12 write "external" as a state.
        state=state_of(definition) if row.state == "external" else row.state,
        version=row.version,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
        error=row.error,
        runs_had=row.runs_had,
    )
