"""Stations 4 to 7: the ledger's rows, and how they follow their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Row

from duly.events import AttemptStatus
from duly.jobs import JobState, NewJob
from duly.ledger import Occurrence, OccurrenceState, follow
from duly.planning import PlannedOccurrence
from duly.schedules import ScheduleId
from duly.stores.checks import check_limit
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples

REPLACEABLE = (OccurrenceState.WITHDRAWN, OccurrenceState.QUARANTINED)
"""States of a row that planning may write over."""


def write(db: Db, rows: Sequence[dict[str, Any]]) -> set[tuple[str, int]]:
    """Store occurrences; gives those that were free to take, by schedule and nominal time."""
    if not rows:
        return set()
    table = db.tables.occurrences
    names = [column.name for column in table.c]
    changed = ", ".join(f"{name} = excluded.{name}" for name in names[2:])
    states = ", ".join(f"'{state}'" for state in REPLACEABLE)
    written = db.run(
        f"INSERT INTO {{p}}occurrences AS o ({', '.join(names)}) "
        f"SELECT {', '.join(names)} FROM {db.dialect.records(table)} WHERE 1 = 1 "
        f"ON CONFLICT (schedule_id, nominal_ms) DO UPDATE SET {changed} "
        f"WHERE o.state IN ({states}) RETURNING schedule_id, nominal_ms",
        rows=msgspec.json.encode(rows).decode(),
    )
    return {(row[0], row[1]) for row in tuples(written)}


def values(
    occurrence: PlannedOccurrence, job: NewJob | None, now_ms: int, whose: tuple[str, str, str]
) -> dict[str, Any]:
    """A planned occurrence as columns; `whose` is the schedule's key."""
    flow, scope, name = whose
    return {
        "schedule_id": occurrence.schedule_id,
        "nominal_ms": occurrence.nominal_ms,
        "flow": flow,
        "scope": scope,
        "name": name,
        "run_at_ms": occurrence.run_at_ms,
        "state": occurrence.state.value,
        "missed": 0,
        "row_version": 0,
        "claim_id": None,
        "position": 0,
        "at_ms": now_ms,
        "until_ms": occurrence.until_ms,
        "times": occurrence.count,
        "job_id": None if job is None else job.id,
        "reason": occurrence.reason,
        "fired_at_ms": None,
        "ended_at_ms": None,
    }


def follow_jobs(
    db: Db, job_ids: Iterable[str], state: JobState, ended_as: AttemptStatus | None = None
) -> None:
    """Let the occurrences of jobs that went to a state follow them."""
    statement = _follow_statement(state, ended_as == "denied")
    ids = sorted(job_ids)
    if statement is not None and ids:
        for chunk in chunks(ids):
            db.run(statement, ids=list(chunk))


@lru_cache(maxsize=16)
def _follow_statement(job: JobState, is_denied: bool) -> str | None:
    status: AttemptStatus | None = "denied" if is_denied else None
    moves = {state: follow(state, job, status) for state in OccurrenceState}
    moves = {state: target for state, target in moves.items() if state != target}
    if not moves:
        return None
    cases = " ".join(f"WHEN '{state}' THEN '{target}'" for state, target in moves.items())
    times = {
        JobState.PROCESSING: "fired_at_ms = COALESCE(fired_at_ms, {now})",
        JobState.QUEUED: "ended_at_ms = NULL",
    }.get(job, "ended_at_ms = {now}")
    states = ", ".join(f"'{state}'" for state in moves)
    return (
        f"UPDATE {{p}}occurrences SET state = CASE state {cases} END, {times} "
        f"WHERE job_id IN :ids AND state IN ({states})"
    )


def list_occurrences(
    db: Db, schedule_id: ScheduleId, *, before_ms: int | None = None, limit: int = 100
) -> list[Occurrence]:
    """One page of a schedule's ledger, newest first."""
    check_limit(limit)
    earlier = "" if before_ms is None else "AND nominal_ms < :before_ms "
    given = {} if before_ms is None else {"before_ms": before_ms}
    rows = db.run(
        "SELECT * FROM {p}occurrences WHERE schedule_id = :schedule_id "
        f"{earlier}ORDER BY nominal_ms DESC LIMIT :limit",
        schedule_id=schedule_id,
        limit=limit,
        **given,
    )
    return [occurrence_of(row) for row in rows]


def occurrence_of(row: Row[Any]) -> Occurrence:
    """An occurrence from a row that has all columns."""
    return Occurrence(
        schedule_id=row.schedule_id,
        nominal_ms=row.nominal_ms,
        until_ms=row.nominal_ms if row.until_ms is None else row.until_ms,
        count=row.times,
        run_at_ms=row.run_at_ms,
        state=OccurrenceState(row.state),
        flow=row.flow,
        scope=row.scope,
        name=row.name,
        job_id=row.job_id,
        reason=row.reason,
        fired_at_ms=row.fired_at_ms,
        ended_at_ms=row.ended_at_ms,
    )
