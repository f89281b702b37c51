"""Station 5: what an endpoint makes of a dispatch, in one transaction.

The document of the schedule is locked first, so no pause comes between, and before it the index row
of one with a limit on its runs. Then the key decides, then
the ledger, then the state of the schedule, then its running marker. An answer other than a job
gives the key back, so no failing answer takes one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, and_, select

from duly.dispatch_store import Duplicate, Fire, FireAnswer, Fired, Overlapped
from duly.jobs import JobId, NewJob
from duly.ledger import OccurrenceState
from duly.occurrences import Advance
from duly.planning import PlannedOccurrence
from duly.runs import left_of
from duly.schedules import ScheduleId
from duly.stores.checks import SCHEDULES, ends_with, refuse_fire
from duly.stores.sql import events, rows
from duly.stores.sql.db import Db, LostRace
from duly.stores.sql.edits import Stored
from duly.stores.sql.hand_over import hand_over
from duly.stores.sql.job_inserts import Keys
from duly.stores.sql.ledger import REPLACEABLE, entry_of
from duly.stores.sql.runs import limited, write_counts
from duly.stores.sql.schedules import Held, hold, schedule_of

_FREE = (*REPLACEABLE, OccurrenceState.DISPATCHING)
"""States of a time that an endpoint may fire."""


def fire(db: Db, request: Fire) -> FireAnswer:
    """Make the job of a dispatch, unless it was made before, overlaps or is refused."""
    job = request.job
    if _exists(db, job):
        return Fired(job.id)
    now_ms = db.now_ms()
    db = db.at(now_ms)
    held = _held(db, job)
    keys = Keys(db, [job])
    holder = None if job.key is None else keys.take(job)
    if holder is not None:
        # The same call may be made twice at once: then the other one has stored the job meanwhile.
        is_same = holder.job_id == job.id and _exists(db, job)
        return Fired(job.id) if is_same else Duplicate(holder.job_id)
    answer = _hand_over(db, request, held, now_ms)
    if job.key is not None and not isinstance(answer, Fired):
        keys.give_back(job)
    return answer


def _exists(db: Db, job: NewJob) -> bool:
    return db.run("SELECT 1 FROM {p}jobs WHERE id = :id", id=job.id).first() is not None


def _held(db: Db, job: NewJob) -> Held | None:
    """Read the schedule of a dispatch, if it is stored, and lock its document.

    Of one with a limit on its runs the index row, which is charged too, is locked first: that is
    the order of locks.
    """
    table = db.tables.resources
    own = and_(table.c.id == job.schedule_id, table.c.collection == SCHEDULES)
    body = db.connection.execute(select(table.c.body).where(own)).scalar()
    if body is None:
        return None
    if limited(body):
        return hold(db, ScheduleId(job.schedule_id or ""))
    found = db.connection.execute(select(table).where(own).with_for_update()).first()
    if found is None:
        return None
    if limited(found.body):
        raise LostRace(f"schedule {job.schedule_id} got a limit on its runs while it was fired")
    return Held(Stored(schedule_of(found), None), None)


def _charge_one(db: Db, held: Held) -> bool:
    """Charge one run to a schedule outside the plan of its row; whether it was the last."""
    schedule, row = held.stored.schedule, held.stored.row
    left = left_of(schedule)
    if left is None:
        return False
    write_counts(db, [{"id": schedule.id, "runs_had": (schedule.runs_had or 0) + 1}])
    if row is not None:
        db.run(
            "UPDATE {p}schedule_index SET runs_left = :left, version = version + 1 "
            "WHERE row_id = :row_id",
            left=left - 1,
            row_id=held.row_id,
        )
    return left == 1


def _end(db: Db, held: Held, now_ms: int) -> None:
    """Finish a schedule with its last run."""
    rows.remove(db, [] if held.row_id is None else [held.row_id])
    ended = Advance(held.stored.schedule.id, None, None, None, 0)
    events.end_schedules(db, [ended], "finished", now_ms)


def _hand_over(db: Db, request: Fire, held: Held | None, now_ms: int) -> FireAnswer:
    job, schedule = request.job, None if held is None else held.stored.schedule
    assert job.schedule_id is not None
    assert job.nominal_ms is not None
    time = job.schedule_id, job.nominal_ms
    earlier = _covering(db, *time)
    if earlier is not None and earlier.nominal_ms != job.nominal_ms:
        return Duplicate(None)  # a run of times that was swallowed
    if earlier is not None and earlier.state not in _FREE:
        return _taken(earlier.job_id, job.id)
    is_open = earlier is not None and earlier.state == OccurrenceState.DISPATCHING
    refused = refuse_fire(request, schedule, is_open=is_open)
    if refused is not None:
        return refused
    occurrence = PlannedOccurrence(
        ScheduleId(job.schedule_id),
        job.nominal_ms,
        job.nominal_ms,
        1,
        job.nominal_ms if earlier is None else earlier.run_at_ms,
        OccurrenceState.PLANNED,
        None if earlier is None or earlier.state != "dispatching" else earlier.reason,
    )
    if job.run_at_ms is None:
        job = msgspec.structs.replace(job, run_at_ms=now_ms)
    entry = entry_of(occurrence, request, now_ms, job.id)
    handed = hand_over(db, [entry], [job], over=_FREE)
    if held is not None and not handed.taken:
        # What a tick holds was charged when the tick planned it.
        is_last = not is_open and _charge_one(db, held)
        if is_last or ends_with(held.stored.schedule, job.nominal_ms):
            _end(db, held, now_ms)
    if handed.planned:
        _begin(db, job)
        return Fired(job.id)
    standing = _covering(db, *time)
    assert standing is not None
    if handed.skipped:
        return Overlapped(standing.reason, _holder(db, time[0]))
    return _taken(standing.job_id, job.id)


def _taken(standing_id: JobId | None, job_id: JobId) -> Fired | Duplicate:
    # The same call may have been made twice at once.
    return Fired(job_id) if standing_id == job_id else Duplicate(standing_id)


def _holder(db: Db, schedule_id: str) -> JobId:
    """Who has the running marker: whatever is skipped was skipped for it, in this transaction."""
    statement = "SELECT job_id FROM {p}running WHERE schedule_id = :schedule_id"
    return JobId(db.run(statement, schedule_id=schedule_id).scalar_one())


def _covering(db: Db, schedule_id: str, nominal_ms: int) -> Row[Any] | None:
    """The ledger row that speaks of a time, be it inside a run of times."""
    found = db.run(
        "SELECT nominal_ms, until_ms, run_at_ms, state, reason, job_id FROM {p}occurrences "
        "WHERE schedule_id = :schedule_id AND nominal_ms <= :nominal_ms "
        "ORDER BY nominal_ms DESC LIMIT 1",
        schedule_id=schedule_id,
        nominal_ms=nominal_ms,
    ).first()
    if found is None or nominal_ms > max(found.nominal_ms, found.until_ms or 0):
        return None
    return found


def _begin(db: Db, job: NewJob) -> None:
    """A job that is queued has fired its occurrence; one that waits has not yet."""
    db.run(
        "UPDATE {p}occurrences SET state = 'fired', fired_at_ms = {now} WHERE job_id = :id "
        "AND EXISTS (SELECT 1 FROM {p}jobs WHERE id = :id AND state = 'queued')",
        id=job.id,
    )
