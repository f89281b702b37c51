"""PostgreSQL: the hot statements of jobs.

Each is one statement that moves jobs and writes their events with them. States stand in the text,
not in parameters: a prepared plan must know that a partial index covers them. `= ANY(ARRAY(SELECT`
keeps the planner to the key, where an array it can count would tempt it to read the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from duly.jobs import FINAL, LeasedJob, NewJob
from duly.outcomes import Finish
from duly.stores.sql.db import tuples
from duly.stores.sql.job_inserts import full_row
from duly.stores.sql.postgresql_arrays import numbers_array, texts_array
from duly.stores.sql.postgresql_copy import copy_jobs, copy_occurrences

if TYPE_CHECKING:
    from duly.stores.sql.db import Db
    from duly.stores.sql.job_claims import Take

_LEASED = ", ".join(f"j.{name}" for name in LeasedJob._fields)


def take_jobs(db: Db, take: Take) -> Iterable[tuple[Any, ...]]:
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
    return tuples(db.run(statement, **values))


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
    """Store ends of one shape; gives the leases that were void."""
    first = finishes[0]
    values: dict[str, Any] = {
        "ids": texts_array([each.job_id for each in finishes]),
        "fences": numbers_array([each.fence for each in finishes]),
        "charge": first.charge,
        "ended_as": None if first.status == first.state else first.status,
    }
    # What no job of the batch has need not travel.
    given: dict[str, str] = {}
    if any(each.result is not None for each in finishes):
        given["results"] = texts_array([each.result for each in finishes])
    if any(each.error is not None for each in finishes):
        given["errors"] = texts_array([each.error for each in finishes])
    if first.delay_ms is not None:
        given["delays"] = numbers_array([each.delay_ms for each in finishes])
    rows = db.run(
        _end_statement(first.state, first.via, first.status == "released", frozenset(given)),
        **values,
        **given,
    )
    return [(row.id, row.fence) for row in rows]


_ARRAYS = {"results": "text[]", "errors": "text[]", "delays": "bigint[]"}


@lru_cache(maxsize=64)
def _end_statement(state: str, via: str | None, is_released: bool, given: frozenset[str]) -> str:
    result = "f.results" if "results" in given else "NULL"
    error = "f.errors" if "errors" in given else "CAST(NULL AS text)"
    sets = f"state = '{state}', events = events + {1 if via is None else 2}"
    if "delays" in given:
        sets += ", place = place + {now} + f.delays - run_at_ms, run_at_ms = {now} + f.delays"
    if state in FINAL:
        sets += ", finished_at_ms = {now}"
    if not is_released:
        sets += f", result = {result}, error = {error}"
    passed = ""
    if via is not None:
        passed = (
            f"UNION ALL SELECT id, events - 1, {{now}}, '{via}', fence, error, :ended_as FROM ended"
        )
    names = sorted(given)
    arrays = "".join(f", CAST(:{name} AS {_ARRAYS[name]})" for name in names)
    return f"""
        WITH f AS MATERIALIZED (
            SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:fences AS integer[]){arrays})
                AS f ({", ".join(["id", "fence", *names])})
        ), ended AS (
            UPDATE {{p}}jobs AS j SET {sets}, attempts = attempts + :charge,
                worker = NULL, lease_until_ms = NULL
            FROM f
            WHERE j.id = ANY(ARRAY(SELECT id FROM f)) AND j.id = f.id AND j.fence = f.fence
                AND j.state = 'processing'
                {"" if state in FINAL else "AND j.cancel_asked = 0"}
            RETURNING j.id, j.fence, j.events, {error} AS error
        ), told AS (
            INSERT INTO {{p}}job_events (job_id, seq, at_ms, state, attempt, reason, ended_as)
            SELECT id, events, {{now}}, '{state}', fence, error, :ended_as FROM ended {passed}
        )
        SELECT id, fence FROM f EXCEPT SELECT id, fence FROM ended
    """


def add_jobs(db: Db, jobs: Sequence[NewJob]) -> dict[str, str]:
    """Store new jobs and their events; gives ids and states of those that were new."""
    if not db.is_foreign and len(jobs) >= COPY_FROM:
        states = copy_jobs(db, jobs)
        if states is not None:
            return states
    # The clock is the database's: what depends on it is put in there.
    rows = [full_row(job, 0) | {"run_at_ms": job.run_at_ms} for job in jobs]
    added = db.run(_ADD, rows=msgspec.json.encode(rows).decode())
    return {row.id: row.state for row in added}


def add_occurrences(db: Db, rows: Sequence[dict[str, Any]]) -> bool:
    """Store many ledger rows at once, all new; False: nothing was stored."""
    return not db.is_foreign and len(rows) >= COPY_FROM and copy_occurrences(db, rows)


COPY_FROM = 100
"""So many rows are worth a COPY."""

_ADD = """
    WITH added AS (
        INSERT INTO {p}jobs (id, action, queue, workspace, scope, state, priority, place, run_at_ms,
            created_at_ms, attempts, max_attempts, careful, fence, events, retry, timeout_ms,
            cancel_asked, idempotency_key, schedule_id, nominal_ms, policies, turn, in_line,
            correlation_id, metadata, input)
        SELECT id, action, queue, workspace, scope,
            CASE WHEN run_at_ms > {now} OR in_line = 1 THEN 'scheduled' ELSE 'queued' END, priority,
            CASE WHEN run_at_ms IS NULL THEN {now} + place ELSE place END,
            COALESCE(run_at_ms, {now}), {now}, 0, max_attempts,
            careful, 0, 1, retry, timeout_ms, 0, idempotency_key, schedule_id, nominal_ms,
            policies, turn, in_line, correlation_id, metadata, input
        FROM json_to_recordset(CAST(:rows AS json)) AS r (id text, action text, queue text,
            workspace text, scope text, priority integer, place bigint, run_at_ms bigint,
            max_attempts integer, careful integer, retry text, timeout_ms bigint,
            idempotency_key text, schedule_id text, nominal_ms bigint, policies text, turn text,
            in_line integer, correlation_id text, metadata text, input text)
        ON CONFLICT (id) DO NOTHING RETURNING id, state
    ), told AS (
        INSERT INTO {p}job_events (job_id, seq, at_ms, state, attempt)
        SELECT id, 1, {now}, state, 0 FROM added
    )
    SELECT id, state FROM added
"""
