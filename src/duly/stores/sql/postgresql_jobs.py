"""PostgreSQL: the hot statements of jobs.

Each is one statement that moves jobs and writes their attempts and events with them. States stand
in the text, not in parameters: a prepared plan must know that a partial index covers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Row

from duly.jobs import FINAL, LeasedJob
from duly.outcomes import Finish

if TYPE_CHECKING:
    from duly.stores.sql.db import Db
    from duly.stores.sql.job_claims import Take
    from duly.stores.sql.job_inserts import JobRow

_LEASED = ", ".join(f"j.{name}" for name in LeasedJob._fields)


def take_jobs(db: Db, take: Take) -> Sequence[Row[Any]]:
    """Claim jobs of one line past other claimers' locks, best place first."""
    request = take.request
    values: dict[str, Any] = {"queue": take.queue, "worker": request.worker}
    values |= {"plain": take.limit, "careful": take.careful_limit, "most": take.most}
    values["lease_ms"] = request.lease_ms
    if take.workspace is not None:
        values["workspace"] = take.workspace
    if request.actions is not None:
        values["actions"] = list(request.actions)
    statement = _take(take.workspace is not None, request.actions is not None)
    return db.run(statement, **values).all()


@lru_cache(maxsize=4)
def _take(by_workspace: bool, by_action: bool) -> str:
    terms = "state = 'queued' AND queue = :queue AND run_at_ms <= {now}"
    terms += " AND workspace = :workspace" if by_workspace else ""
    terms += " AND action = ANY(CAST(:actions AS text[]))" if by_action else ""
    pick = f"SELECT id, place FROM {{p}}jobs WHERE {terms}"
    order = "ORDER BY place, id"
    return f"""
        WITH plain AS MATERIALIZED (
            {pick} AND careful = 0 {order} LIMIT :plain FOR UPDATE SKIP LOCKED
        ), careful AS MATERIALIZED (
            {pick} AND careful = 1 {order} LIMIT :careful FOR UPDATE SKIP LOCKED
        ), taken AS (
            UPDATE {{p}}jobs AS j SET state = 'processing', fence = fence + 1,
                events = events + 1, attempts = attempts + careful, worker = :worker,
                lease_until_ms = {{now}} + :lease_ms
            WHERE id = ANY(ARRAY(
                SELECT id FROM (SELECT * FROM plain UNION ALL SELECT * FROM careful) AS picked
                {order} LIMIT :most))
            RETURNING {_LEASED}, j.events, j.place
        ), told AS (
            INSERT INTO {{p}}job_events (job_id, seq, at_ms, state, attempt, actor)
            SELECT id, events, {{now}}, 'processing', fence, :worker FROM taken
        )
        SELECT {", ".join(LeasedJob._fields)} FROM taken {order}
    """


def end_jobs(db: Db, finishes: Sequence[Finish]) -> list[tuple[str, int]]:
    """Store ends of one shape; gives the leases that stood."""
    first = finishes[0]
    return [
        (row.id, row.fence)
        for row in db.run(
            _end(first),
            ids=[each.job_id for each in finishes],
            fences=[each.fence for each in finishes],
            results=[each.result for each in finishes],
            errors=[each.error for each in finishes],
            delays=[each.delay_ms for each in finishes],
            charge=first.charge,
            ended_as=None if first.status == first.state else first.status,
        )
    ]


def _end(first: Finish) -> str:
    return _end_statement(
        first.state, first.via, first.delay_ms is not None, first.status == "released"
    )


@lru_cache(maxsize=32)
def _end_statement(state: str, via: str | None, has_delay: bool, is_released: bool) -> str:
    is_final = state in FINAL
    sets = f"state = '{state}', events = events + {1 if via is None else 2}"
    if has_delay:
        sets += ", place = place + {now} + f.delay_ms - run_at_ms, run_at_ms = {now} + f.delay_ms"
    if is_final:
        sets += ", finished_at_ms = {now}"
    if not is_released:
        sets += ", result = f.result, error = f.error"
    passed = ""
    if via is not None:
        passed = (
            f"UNION ALL SELECT id, events - 1, {{now}}, '{via}', fence, error, :ended_as FROM ended"
        )
    return f"""
        WITH ended AS (
            UPDATE {{p}}jobs AS j SET {sets}, attempts = attempts + :charge,
                worker = NULL, lease_until_ms = NULL
            FROM unnest(CAST(:ids AS text[]), CAST(:fences AS integer[]),
                CAST(:results AS text[]), CAST(:errors AS text[]), CAST(:delays AS bigint[]))
                AS f (id, fence, result, error, delay_ms)
            WHERE j.id = ANY(CAST(:ids AS text[])) AND j.id = f.id AND j.fence = f.fence
                AND j.state = 'processing'
                {"" if is_final else "AND j.cancel_asked = 0"}
            RETURNING j.id, j.fence, j.events, f.error
        ), told AS (
            INSERT INTO {{p}}job_events (job_id, seq, at_ms, state, attempt, reason, ended_as)
            SELECT id, events, {{now}}, '{state}', fence, error, :ended_as FROM ended {passed}
        )
        SELECT id, fence FROM ended
    """


def add_jobs(db: Db, rows: Sequence[JobRow]) -> list[tuple[str, str]]:
    """Store new jobs and their events; gives ids and states of those that were new."""
    if not rows:
        return []
    added = db.run(_ADD, rows=msgspec.json.encode(rows).decode())
    return [(row.id, row.state) for row in added]


_ADD = """
    WITH added AS (
        INSERT INTO {p}jobs (id, action, queue, workspace, scope, state, priority, place, run_at_ms,
            created_at_ms, attempts, max_attempts, careful, fence, events, retry, timeout_ms,
            cancel_asked, idempotency_key, schedule_id, nominal_ms, correlation_id, metadata, input)
        SELECT id, action, queue, workspace, scope,
            CASE WHEN run_at_ms > {now} THEN 'scheduled' ELSE 'queued' END, priority,
            COALESCE(run_at_ms, {now}) + weight, COALESCE(run_at_ms, {now}), {now}, 0, max_attempts,
            careful, 0, 1, retry, timeout_ms, 0, idempotency_key, schedule_id, nominal_ms,
            correlation_id, metadata, input
        FROM json_to_recordset(CAST(:rows AS json)) AS r (id text, action text, queue text,
            workspace text, scope text, priority integer, weight bigint, run_at_ms bigint,
            max_attempts integer, careful integer, retry text, timeout_ms bigint,
            idempotency_key text, schedule_id text, nominal_ms bigint, correlation_id text,
            metadata text, input text)
        ON CONFLICT (id) DO NOTHING RETURNING id, state
    ), told AS (
        INSERT INTO {p}job_events (job_id, seq, at_ms, state, attempt)
        SELECT id, 1, {now}, state, 0 FROM added
    )
    SELECT id, state FROM added
"""
