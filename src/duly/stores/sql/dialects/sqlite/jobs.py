"""SQLite: the hot statements of jobs.

A SQLite statement writes one table only. That is enough: the verb holds the write lock, so it can
read, decide and write in separate statements. Batches are sent as JSON or prepared statements.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row

from duly.model.claims import ProgressNote
from duly.model.jobs import FINAL, JobState, LeasedJob, NewJob
from duly.rules.outcomes import Finish
from duly.stores.sql.db import tuples
from duly.stores.sql.fast.inserts import first_event, full_row
from duly.stores.sql.rows import line, markers
from duly.stores.sql.rows.job_events import IN_THE_ROW, ISOLATED

if TYPE_CHECKING:
    from duly.stores.sql.db import Db
    from duly.stores.sql.fast.claims import Take
    from duly.stores.sql.rows.ledger import Entry

_LEASED = ", ".join(f"j.{name}" for name in LeasedJob._fields)


def take_jobs(db: Db, take: Take) -> Iterable[tuple[Any, ...]]:
    """Claim jobs of one queue and return their fields, best place first."""
    request = take.request
    values: dict[str, Any] = {"queue": take.queue}
    if take.workspace is not None:
        values["workspace"] = take.workspace
    if request.actions is not None:
        values["actions"] = list(request.actions)
    statement = _pick(take.workspace is not None, request.actions is not None)
    picked = db.run(statement, limit=take.limit, first_place=take.first_place, **values).all()
    if not picked:
        return []
    db.connection.exec_driver_sql(
        _LEAVE.format(prefix=db.dialect.names(db.tables)[0]),
        [(take.queue, row.place, row.id) for row in picked],
    )
    ids = json.dumps([row.id for row in picked])
    db.run(
        "UPDATE {p}jobs SET state = 'processing', fence = fence + 1, events = events + 1, "
        "unstarted = CASE WHEN careful > 0 THEN fence + 1 END, worker = :worker, "
        "claimed_at_ms = {now}, lease_until_ms = :until_ms "
        "WHERE id IN (SELECT value FROM json_each(:ids))",
        ids=ids,
        worker=request.worker,
        until_ms=take.lease_until_ms,
    )
    leased = db.run(
        f"SELECT {_LEASED} FROM json_each(:ids) AS picked "
        "CROSS JOIN {p}jobs AS j ON j.id = picked.value ORDER BY picked.key",
        ids=ids,
    )
    return tuples(leased)


_LEAVE = "DELETE FROM {prefix}job_line WHERE queue = ? AND place = ? AND id = ?"


@lru_cache(maxsize=4)
def _pick(by_workspace: bool, by_action: bool) -> str:
    return (
        "SELECT id, place FROM {p}job_line WHERE queue = :queue "
        + ("AND workspace = :workspace " if by_workspace else "")
        + ("AND action IN :actions " if by_action else "")
        + "AND place >= :first_place AND run_at_ms <= {now} ORDER BY place, id LIMIT :limit"
    )


def end_jobs(db: Db, finishes: Sequence[Finish]) -> list[tuple[str, int]]:
    """Store completions of one shape; return the leases that were void."""
    first = finishes[0]
    now_ms = db.now_ms()
    by_lease = {(each.job_id, each.fence): each for each in finishes}
    standing = db.run(
        "SELECT j.id, j.fence, j.events, j.worker, j.claimed_at_ms FROM json_each(:ids) AS f "
        "CROSS JOIN {p}jobs AS j ON j.id = f.value WHERE j.state = 'processing' "
        + ("" if first.state in FINAL else "AND j.cancel_asked = 0"),
        ids=json.dumps(list({each.job_id for each in finishes})),
    ).all()
    rows = [row for row in standing if (row.id, row.fence) in by_lease]
    void = by_lease.keys() - {(row.id, row.fence) for row in rows}
    if not rows:
        return list(void)
    valid = [by_lease[row.id, row.fence] for row in rows]
    prefix, _ = db.dialect.names(db.tables)
    many = db.connection.exec_driver_sql
    ended = [row.id for row in rows]
    many(
        _end(prefix, first),
        [
            {
                "now": now_ms,
                "charge": first.charge,
                "next": now_ms + (each.delay_ms or 0),
                "result": each.result,
                "error": each.error,
                "took": each.took_ms,
                "note": each.progress,
                "id": each.job_id,
            }
            for each in valid
        ],
    )
    if first.state in FINAL:
        markers.add(db, first.state, now_ms, ended)
    elif first.state is JobState.QUEUED:
        line.enter(db, ended)
    if first.state not in IN_THE_ROW:
        many(_INSERT_EVENTS.format(prefix=prefix), _event_rows(rows, valid, now_ms))
    return list(void)


_INSERT_EVENTS = """
    INSERT OR IGNORE INTO {prefix}job_events
        (job_id, seq, at_ms, state, attempt, actor, reason, ended_as, took_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def _event_rows(
    rows: Sequence[Row[Any]], finishes: Sequence[Finish], now_ms: int
) -> list[tuple[Any, ...]]:
    """Return the events of attempts that the job's row no longer holds: start and end."""
    first = finishes[0]
    path = [state.value for state in (first.via, first.state) if state is not None]
    ended_as = None if first.status == first.state else first.status
    starts = [
        (
            row.id,
            row.events,
            row.claimed_at_ms,
            "processing",
            row.fence,
            row.worker,
            None,
            None,
            None,
        )
        for row in rows
        if row.claimed_at_ms is not None
    ]
    return starts + [
        (
            row.id,
            row.events + step,
            now_ms,
            state,
            row.fence,
            None,
            end.error,
            ended_as,
            end.took_ms,
        )
        for row, end in zip(rows, finishes, strict=True)
        for step, state in enumerate(path, 1)
    ]


def _end(prefix: str, first: Finish) -> str:
    """Return the UPDATE for completions of one shape.

    Parameters are named: Python 3.12.0 to 3.12.3 warn about numbered ones.
    """
    sets = f"state = '{first.state}', events = events + {1 if first.via is None else 2}"
    ended_at = ":now" if first.state in FINAL else "NULL"
    sets += f", finished_at_ms = {ended_at}, attempts = attempts + :charge"
    sets += f", waits = {int(first.state is JobState.RETRYING)}"
    if first.delay_ms is not None:
        sets += ", place = place + :next - run_at_ms, run_at_ms = :next"
    if first.status != "released":
        sets += ", result = :result, error = :error"
    if first.state is JobState.SUCCEEDED:
        sets += ", took_ms = :took"
    sets += ", progress = COALESCE(:note, progress)"
    if first.isolate:
        sets += f", careful = {ISOLATED}"
    return f"UPDATE {prefix}jobs SET {sets}, lease_until_ms = NULL WHERE id = :id"


def write_progress(db: Db, notes: Sequence[ProgressNote]) -> None:
    """Store progress notes of locked jobs."""
    if notes:
        prefix, _ = db.dialect.names(db.tables)
        db.connection.exec_driver_sql(
            f"UPDATE {prefix}jobs SET progress = ? WHERE id = ?",
            [(note.progress, note.job_id) for note in notes],
        )


def add_jobs(db: Db, jobs: Sequence[NewJob]) -> dict[str, str]:
    """Store new jobs and their events; return the ids and states of those that were new."""
    now_ms = db.now_ms()
    known = set(
        db.run(
            "SELECT id FROM {p}jobs WHERE id IN (SELECT value FROM json_each(:ids))",
            ids=json.dumps([job.id for job in jobs]),
        ).scalars()
    )
    rows = [full_row(job, now_ms) for job in jobs if job.id not in known]
    if rows:
        db.connection.execute(db.tables.jobs.insert(), rows)
        db.connection.execute(db.tables.job_events.insert(), [first_event(row) for row in rows])
        line.enter(db, [row["id"] for row in rows if row["state"] == JobState.QUEUED])
    return {row["id"]: row["state"] for row in rows}


def add_occurrences(db: Db, entries: Sequence[Entry]) -> bool:  # noqa: ARG001
    """Return False: SQLite has no faster way than the common INSERT."""
    return False
