"""Station 3: the index rebuilt from documents and ledger, and the facts of its health.

Pages of schedules, each in its own transaction, so that a large index is mended beside its users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, select

from duly.occurrences import Advance, IndexRow, index_row
from duly.rules.checks import SCHEDULES, with_times_of
from duly.runs import known_runs, left_of
from duly.schedules import Schedule, first_after_ms, is_indexed
from duly.store import IndexHealth, ReconcileReport, ScheduleKey
from duly.stores.sql import events, ledger, rows
from duly.stores.sql.bulk import update_all
from duly.stores.sql.db import Db
from duly.stores.sql.items.schedules import schedule_of

PAGE = 500


@dataclass(frozen=True, slots=True)
class Page:
    """What one page gave, and where the next one begins."""

    report: ReconcileReport
    flows: frozenset[str]
    """Flows that have schedules here: their rows without one may go."""
    after: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Fired:
    """What the ledger says of a schedule: how many runs, and the last time it covers."""

    count: int
    last_ms: int


def reconcile_page(db: Db, flows: Sequence[str] | None, after: tuple[str, str]) -> Page:
    """Mend the rows of one page of schedules."""
    table = db.tables.resources
    statement = (
        select(table)
        .where(table.c.collection == SCHEDULES)
        .where(
            (table.c.scope > after[0]) | and_(table.c.scope == after[0], table.c.name > after[1])
        )
        .order_by(table.c.scope, table.c.name)
        .limit(PAGE)
    )
    found = db.connection.execute(statement).all()
    if not found:
        return Page(ReconcileReport(), frozenset(), None)
    schedules = [schedule_of(row) for row in found]
    wanted = [each for each in schedules if flows is None or each.flow in flows]
    standing = _standing(db, [_key(each) for each in wanted])
    wanted = _held(db, wanted)
    fired = _fired(db, [each.id for each in wanted])
    report = ReconcileReport(checked=len(wanted))
    retimed = events.retimed(db, list(fired))
    wanted = _counted(db, wanted, standing, fired)
    for schedule in wanted:
        right = _rebuilt(schedule, fired.get(schedule.id), retimed.get(schedule.id, 0))
        report += _mend(db, schedule, standing.get(_key(schedule)), right)
    last = (found[-1].scope, found[-1].name)
    return Page(report, frozenset(each.flow for each in wanted), last)


def _key(schedule: Schedule) -> ScheduleKey:
    return ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)


def _standing(db: Db, keys: Sequence[ScheduleKey]) -> dict[ScheduleKey, Any]:
    """Rows under the keys, locked, whoever they belong to."""
    # A rule whose index row somebody has deleted by hand would be in the way of a new one.
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    has_row = select(index.c.row_id).where(index.c.row_id == rules.c.row_id).exists()
    db.connection.execute(delete(rules).where(rows.under(db, keys), ~has_row))
    found = rows.locked(db, keys)
    return {ScheduleKey(row.flow, row.scope, row.name): row for row in found}


def _held(db: Db, schedules: Sequence[Schedule]) -> list[Schedule]:
    """The schedules as they stand now that nobody edits them; those deleted since are left out."""
    table = db.tables.resources
    ids = [each.id for each in schedules]
    own = select(table).where(table.c.id.in_(ids), table.c.collection == SCHEDULES)
    found = db.connection.execute(own.order_by(table.c.id).with_for_update())
    standing = {row.id: schedule_of(row) for row in found}
    return [standing[each] for each in ids if each in standing]


def _fired(db: Db, ids: Sequence[str]) -> dict[str, Fired]:
    """What the ledger says of each schedule it knows."""
    return {each: Fired(*found) for each, found in ledger.runs(db, ids).items()}


def _counted(
    db: Db,
    schedules: Sequence[Schedule],
    standing: Mapping[ScheduleKey, Any],
    fired: Mapping[str, Fired],
) -> list[Schedule]:
    """The schedules with the count of their runs, which is stored where it was not."""
    counted = []
    for schedule in schedules:
        row, known = standing.get(_key(schedule)), fired.get(schedule.id)
        row_left = None
        if row is not None and row.schedule_id == schedule.id:
            row_left = row.runs_left
        had = known_runs(schedule, row_left, 0 if known is None else known.count)
        counted.append(replace(schedule, runs_had=had))
    both = zip(schedules, counted, strict=True)
    changed = [new for old, new in both if new.runs_had != old.runs_had]
    counts = [{"id": each.id, "runs_had": each.runs_had} for each in changed]
    update_all(db, db.tables.resources, "id", counts)
    return counted


def _rebuilt(schedule: Schedule, fired: Fired | None, retimed_ms: int) -> IndexRow | None:
    """The row that document, ledger and events alone give."""
    # The last time, not its run time, which catching up may have moved; index_row() takes the
    # spread off again.
    offset_ms = schedule.definition.trigger.offset_ms
    after_ms = first_after_ms(schedule.definition, schedule.updated_at_ms)
    if fired is not None:
        # What the rule says of the time before it held was never a time of this schedule.
        after_ms = max(fired.last_ms + offset_ms, retimed_ms)
    left = left_of(schedule)
    return None if left == 0 else index_row(schedule, after_ms, runs_left=left)


def _mend(db: Db, schedule: Schedule, found: Any, right: IndexRow | None) -> ReconcileReport:
    """Write what is right where something else stands."""
    if schedule.state == "quarantined":
        return ReconcileReport()
    if right is None:
        if schedule.state == "active" and is_indexed(schedule.definition):
            ended = Advance(schedule.id, None, None, None, 0)
            events.end_schedules(db, [ended], "finished", db.now_ms())
        if found is None:
            return ReconcileReport()
        rows.remove(db, [found.row_id])
        return ReconcileReport(removed=1)
    if found is None:
        rows.insert(db, [right])
        return ReconcileReport(added=1)
    row = rows.row_of(found) if found.error is None else None
    if row is not None and with_times_of(row, right) == row:
        return ReconcileReport()
    right = right if row is None else with_times_of(row, right)
    rows.update(db, [(found.row_id, replace(right, version=found.version + 1))])
    return ReconcileReport(corrected=1)


def remove_orphans(db: Db, flows: Sequence[str]) -> int:
    """Remove what is left of schedules that are gone, in flows that keep their schedules here.

    Rows that a caller upserted, with definitions kept elsewhere, stay. They have no events, or the
    event of a deletion: deleting a schedule removes its row as well, so such a row came afterwards,
    from a caller who took over the id.
    """
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    table = db.tables.resources
    name = rules.c.flow + "/" + rules.c.name
    has_schedule = (
        select(table.c.id)
        .where(
            table.c.collection == SCHEDULES, table.c.scope == rules.c.scope, table.c.name == name
        )
        .exists()
    )
    facts = db.tables.schedule_events
    own_facts = select(facts.c.seq).where(facts.c.schedule_id == rules.c.schedule_id)
    had_schedule, was_deleted = (
        own_facts.exists(),
        own_facts.where(facts.c.kind == "deleted").exists(),
    )
    statement = (
        rows.whole(db)
        .with_only_columns(index.c.row_id)
        .where(rules.c.flow.in_(list(flows)), ~has_schedule, had_schedule, ~was_deleted)
        .limit(PAGE)
        .with_for_update(of=index, skip_locked=True)
    )
    gone = db.connection.execute(statement).scalars().all()
    rows.remove(db, gone)
    return len(gone)


def index_health(db: Db) -> IndexHealth:
    """Count what is stored against what is indexed."""
    index, rules = db.tables.schedule_index, db.tables.schedule_rules
    table = db.tables.resources
    active = and_(table.c.collection == SCHEDULES, table.c.state == "active")
    external = and_(active, table.c.hand_over == "external")
    active = and_(active, table.c.hand_over.is_distinct_from("external"))
    has_row = (
        rows.whole(db)
        .where(rules.c.schedule_id == table.c.id, index.c.run_at_ms.is_not(None))
        .exists()
    )
    due = index.c.run_at_ms <= db.clock()
    planned, posts = (and_(due, index.c.hand_over == name) for name in ("jobs", "http"))

    def count(condition: ColumnElement[bool]) -> int:
        return int(db.connection.execute(select(func.count()).where(condition)).scalar_one())

    def oldest(condition: ColumnElement[bool]) -> int | None:
        found = select(func.min(index.c.run_at_ms)).where(condition)
        first: int | None = db.connection.execute(found).scalar()
        return first

    return IndexHealth(
        active=count(active),
        rows=count(index.c.run_at_ms.is_not(None)),
        missing=count(and_(active, ~has_row)),
        quarantined=count(index.c.error.is_not(None)),
        due=count(planned),
        oldest_due_ms=oldest(planned),
        posts_due=count(posts),
        oldest_post_ms=oldest(posts),
        external=count(external),
    )
