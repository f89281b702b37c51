"""Station 5: what an endpoint makes of a dispatch, in one transaction.

The key decides first, then the ledger, then the running marker of the schedule. An answer other
than a job gives the key back, so no failing answer takes one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row

from duly.dispatch_store import Duplicate, Fire, Fired, Overlapped
from duly.jobs import JobId, NewJob
from duly.ledger import OccurrenceState
from duly.planning import PlannedOccurrence
from duly.schedules import ScheduleId
from duly.stores.sql.db import Db
from duly.stores.sql.hand_over import hand_over
from duly.stores.sql.job_inserts import Keys
from duly.stores.sql.ledger import REPLACEABLE, entry_of

_FREE = (*REPLACEABLE, OccurrenceState.DISPATCHING)
"""States of a time that an endpoint may fire."""


def fire(db: Db, request: Fire) -> Fired | Duplicate | Overlapped:
    """Make the job of a dispatch, unless it was made before or overlaps."""
    job = request.job
    if db.run("SELECT 1 FROM {p}jobs WHERE id = :id", id=job.id).first() is not None:
        return Fired(job.id)
    now_ms = db.now_ms()
    db = db.at(now_ms)
    keys = Keys(db, [job])
    holder = None if job.key is None else keys.take(job)
    if holder is not None:
        return Duplicate(holder.job_id)
    answer = _hand_over(db, request, now_ms)
    if job.key is not None and not isinstance(answer, Fired):
        keys.give_back(job)
    return answer


def _hand_over(db: Db, request: Fire, now_ms: int) -> Fired | Duplicate | Overlapped:
    job = request.job
    assert job.schedule_id is not None
    assert job.nominal_ms is not None
    time = job.schedule_id, job.nominal_ms
    earlier = _covering(db, *time)
    if earlier is not None and earlier.nominal_ms != job.nominal_ms:
        return Duplicate(None)  # a run of times that was swallowed
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
    if handed.planned:
        _begin(db, job)
        return Fired(job.id)
    standing = _covering(db, *time)
    assert standing is not None
    if handed.skipped:
        return Overlapped(standing.reason, _holder(db, time[0]))
    # The same call may have been made twice at once.
    return Fired(job.id) if standing.job_id == job.id else Duplicate(standing.job_id)


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
