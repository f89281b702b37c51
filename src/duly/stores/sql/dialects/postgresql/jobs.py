"""PostgreSQL: the hot statements of jobs.

Each statement moves jobs and writes their events. States are literals, not parameters: a prepared
plan must know that a partial index covers them. `= ANY(ARRAY(SELECT` makes the planner use the
key; with an array whose length it knows it may read the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from duly.model.claims import ProgressNote
from duly.model.jobs import FINAL, JobState, LeasedJob, NewJob
from duly.rules.outcomes import Finish
from duly.stores.sql.db import tuples
from duly.stores.sql.dialects.postgresql.arrays import numbers_array, texts_array
from duly.stores.sql.dialects.postgresql.copy import copy_jobs, copy_occurrences
from duly.stores.sql.fast.inserts import full_row
from duly.stores.sql.gaps.search import LINE, each_segment, values_of
from duly.stores.sql.rows import line
from duly.stores.sql.rows.job_events import IN_THE_ROW, ISOLATED

if TYPE_CHECKING:
    from duly.stores.sql.db import Db
    from duly.stores.sql.fast.claims import Take
    from duly.stores.sql.rows.ledger import Entry

_LEASED = ", ".join(f"j.{name}" for name in LeasedJob._fields)
_NOW = "(SELECT {now})"
"""The clock, evaluated once per statement instead of once per row."""


def take_jobs(db: Db, take: Take) -> Iterable[tuple[Any, ...]]:
    """Claim jobs of one queue, skipping rows locked by other claims; best place first."""
    request = take.request
    values: dict[str, Any] = {
        "worker": request.worker,
        "limit": take.limit,
        "until_ms": take.lease_until_ms,
    }
    is_one = len(take.segments) == 1
    if take.workspace is not None:
        values |= {"queue": take.queue, "workspace": take.workspace}
        values["first_place"] = take.first_place
    else:
        values |= values_of((LINE, (take.queue,)), take.segments, "line", is_one)
    if request.actions is not None:
        values["actions"] = list(request.actions)
    statement = _take(take.workspace is not None, request.actions is not None, is_one)
    # UPDATE returns rows in no order, and sorting wide rows is cheaper here than in the database.
    taken = sorted(tuples(db.run(statement, **values)), key=itemgetter(0))
    taken.sort(key=itemgetter(-1))
    return taken


@lru_cache(maxsize=8)
def _take(by_workspace: bool, by_action: bool, is_one: bool) -> str:
    terms = f"run_at_ms <= {_NOW}"
    # Use a range of one value, a filter that cannot be estimated and an unknown limit: in a table
    # that is not analysed yet, as after the first burst, PostgreSQL would otherwise expect few
    # rows, and read and sort all of them.
    terms += " AND COALESCE(action = ANY(CAST(:actions AS text[])), false)" if by_action else ""
    # Jobs that left the queue leave dead index entries, which no vacuum removes while a transaction
    # may still see them. So read only the segments known to hold jobs.
    if by_workspace:
        # A plain equality on workspace would let the planner scan the whole queue by place.
        picked = f"""
            SELECT ctid AS spot FROM {{p}}job_line WHERE {terms} AND queue = :queue
            AND (workspace, place) >= (:workspace, :first_place) AND workspace <= :workspace
            ORDER BY workspace, place, id LIMIT (SELECT :limit) FOR UPDATE SKIP LOCKED"""
    else:
        start, stop = LINE.bounds("line", is_one)
        picked = f"""
            SELECT ctid AS spot FROM {{p}}job_line WHERE {terms}
            AND (queue, place, id) >= ({start}) AND (queue, place, id) < ({stop})
            ORDER BY queue, place, id LIMIT (SELECT :limit) FOR UPDATE SKIP LOCKED"""
        if not is_one:
            picked = f"{each_segment('line', picked)} LIMIT (SELECT :limit)"
    return f"""
        WITH picked AS MATERIALIZED ({picked}
        ), gone AS MATERIALIZED (
            DELETE FROM {{p}}job_line WHERE ctid = ANY(ARRAY(SELECT spot FROM picked)) RETURNING id
        )
        UPDATE {{p}}jobs AS j SET state = 'processing', fence = fence + 1, events = events + 1,
            unstarted = CASE WHEN careful > 0 THEN fence + 1 END, worker = :worker,
            claimed_at_ms = {_NOW}, lease_until_ms = :until_ms
        WHERE id = ANY(ARRAY(SELECT id FROM gone)) AND state = 'queued'
        RETURNING {_LEASED}
    """


def end_jobs(db: Db, finishes: Sequence[Finish]) -> list[tuple[str, int]]:
    """Store completions of one shape; return the leases that were void."""
    first = finishes[0]
    columns = dict(zip(Finish._fields, zip(*finishes, strict=True), strict=True))
    values: dict[str, Any] = {
        "ids": texts_array(columns["job_id"]),
        "fences": numbers_array(columns["fence"]),
        "charge": first.charge,
    }
    if first.state not in IN_THE_ROW:
        values["ended_as"] = None if first.status == first.state else first.status
    # Do not send columns that are empty for the whole batch.
    given: dict[str, str] = {}
    for name, array, field in _GIVEN:
        if columns[field].count(None) < len(finishes):
            given[name] = array(columns[field])
    rows = db.run(
        _end_statement(
            *(first.state, first.via, first.status == "released", first.isolate),
            frozenset(given),
        ),
        **values,
        **given,
    )
    return [(row.id, row.fence) for row in rows]


_GIVEN: tuple[tuple[str, Callable[[Any], str], str], ...] = (
    ("results", texts_array, "result"),
    ("errors", texts_array, "error"),
    ("tooks", numbers_array, "took_ms"),
    ("delays", numbers_array, "delay_ms"),
    ("notes", texts_array, "progress"),
)
_ARRAYS = {name: "text[]" if array is texts_array else "bigint[]" for name, array, _ in _GIVEN}


@lru_cache(maxsize=64)
def _end_statement(
    state: str, via: str | None, is_released: bool, isolate: bool, given: frozenset[str]
) -> str:
    result = "f.results" if "results" in given else "NULL"
    error = "f.errors" if "errors" in given else "CAST(NULL AS text)"
    took = "f.tooks" if "tooks" in given else "CAST(NULL AS bigint)"
    steps = 1 if via is None else 2
    sets = f"state = '{state}', events = events + {steps}"
    if "delays" in given:
        sets += f", place = place + {_NOW} + f.delays - run_at_ms, run_at_ms = {_NOW} + f.delays"
    if state in FINAL:
        sets += f", finished_at_ms = {_NOW}"
    if state == JobState.RETRYING:
        sets += ", waits = 1, entered = DEFAULT"
    if not is_released:
        sets += f", result = {result}, error = {error}"
    if state == JobState.SUCCEEDED:
        sets += f", took_ms = {took}"
    if "notes" in given:
        sets += ", progress = COALESCE(f.notes, j.progress)"
    if isolate:
        sets += f", careful = {ISOLATED}"
    events_sql, returned = "", "j.id, j.fence"
    if state in FINAL:
        events_sql += f""", marked AS (
            INSERT INTO {{p}}job_marks (state, at_ms, jobs, ids)
            SELECT '{state}', {_NOW}, count(*), json_agg(id) FROM ended HAVING count(*) > 0
        )"""
    elif state == JobState.QUEUED:
        events_sql += f""", lined AS (
            INSERT INTO {{p}}job_line ({line.COLUMNS}) SELECT {line.COLUMNS} FROM ended
        )"""
        returned += "".join(f", j.{name}" for name in line.COLUMNS.split(", ") if name != "id")
    if state not in IN_THE_ROW:
        events_sql += _events_sql(state, via, steps)
        returned += f", j.events, j.worker, j.claimed_at_ms, {error} AS error, {took} AS took"
    names = sorted(given)
    arrays = "".join(f", CAST(:{name} AS {_ARRAYS[name]})" for name in names)
    return f"""
        WITH f AS MATERIALIZED (
            SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:fences AS integer[]){arrays})
                AS f ({", ".join(["id", "fence", *names])})
        ), ended AS (
            UPDATE {{p}}jobs AS j SET {sets}, attempts = attempts + :charge, lease_until_ms = NULL
            FROM f
            WHERE j.id = ANY(ARRAY(SELECT id FROM f)) AND j.id = f.id
                AND j.fence = CASE j.state WHEN 'processing' THEN f.fence END
                {"" if state in FINAL else "AND j.cancel_asked = 0"}
            RETURNING {returned}
        ){events_sql}
        SELECT id, fence FROM f WHERE (SELECT count(*) FROM ended) < (SELECT count(*) FROM f)
            AND NOT EXISTS (SELECT FROM ended WHERE ended.id = f.id AND ended.fence = f.fence)
    """


def _events_sql(state: str, via: str | None, steps: int) -> str:
    """Return SQL for the events of attempts that the job's row no longer holds: start and end."""
    passed = ""
    if via is not None:
        passed = f"""UNION ALL SELECT id, events - 1, {_NOW}, '{via}', fence, NULL, error,
            :ended_as, took FROM ended"""
    return f""", told AS (
            INSERT INTO {{p}}job_events
                (job_id, seq, at_ms, state, attempt, actor, reason, ended_as, took_ms)
            SELECT id, events - {steps}, claimed_at_ms, 'processing', fence, worker, NULL, NULL,
                CAST(NULL AS bigint) FROM ended WHERE claimed_at_ms IS NOT NULL
            UNION ALL SELECT id, events, {_NOW}, '{state}', fence, NULL, error, :ended_as, took
            FROM ended
            {passed} ON CONFLICT DO NOTHING
        )"""


def write_progress(db: Db, notes: Sequence[ProgressNote]) -> None:
    """Store progress notes of locked jobs."""
    if notes:
        ids, _, texts = zip(*notes, strict=True)
        db.run(
            "UPDATE {p}jobs AS j SET progress = f.note FROM unnest(CAST(:ids AS text[]), "
            "CAST(:notes AS text[])) AS f (id, note) WHERE j.id = f.id",
            ids=texts_array(ids),
            notes=texts_array(texts),
        )


def add_jobs(db: Db, jobs: Sequence[NewJob]) -> dict[str, str]:
    """Store new jobs and their events; return the ids and states of those that were new."""
    if not db.is_foreign and len(jobs) >= COPY_FROM:
        states = copy_jobs(db, jobs)
        if states is not None:
            return states
    # The statement fills in all values that depend on the database's clock.
    rows = [full_row(job, 0) | {"run_at_ms": job.run_at_ms} for job in jobs]
    added = db.run(_ADD, rows=msgspec.json.encode(rows).decode())
    return {row.id: row.state for row in added}


def add_occurrences(db: Db, entries: Sequence[Entry]) -> bool:
    """Store many new ledger rows at once; False: nothing was stored."""
    return not db.is_foreign and len(entries) >= COPY_FROM and copy_occurrences(db, entries)


COPY_FROM = 100
"""Minimum number of rows that are worth a COPY."""

_ADD = """
    WITH added AS (
        INSERT INTO {p}jobs (id, action, queue, workspace, scope, state, priority, place, run_at_ms,
            created_at_ms, attempts, max_attempts, careful, fence, events, retry, timeout_ms,
            cancel_asked, waits, idempotency_key, schedule_id, nominal_ms, policies, turn, in_line,
            correlation_id, metadata, input)
        SELECT id, action, queue, workspace, scope,
            CASE WHEN run_at_ms > {now} OR in_line = 1 THEN 'scheduled' ELSE 'queued' END, priority,
            CASE WHEN run_at_ms IS NULL THEN {now} + place ELSE place END,
            COALESCE(run_at_ms, {now}), {now}, 0, max_attempts,
            careful, 0, 1, retry, timeout_ms, 0,
            CASE WHEN run_at_ms > {now} AND in_line = 0 THEN 1 ELSE 0 END, idempotency_key,
            schedule_id, nominal_ms, policies, turn, in_line, correlation_id, metadata, input
        FROM json_to_recordset(CAST(:rows AS json)) AS r (id text, action text, queue text,
            workspace text, scope text, priority integer, place bigint, run_at_ms bigint,
            max_attempts integer, careful integer, retry text, timeout_ms bigint,
            idempotency_key text, schedule_id text, nominal_ms bigint, policies text, turn text,
            in_line integer, correlation_id text, metadata text, input text)
        ON CONFLICT (id) DO NOTHING
        RETURNING id, state, queue, place, workspace, action, run_at_ms
    ), lined AS (
        INSERT INTO {p}job_line (queue, place, id, workspace, action, run_at_ms)
        SELECT queue, place, id, workspace, action, run_at_ms FROM added
        WHERE state = 'queued'
    ), told AS (
        INSERT INTO {p}job_events (job_id, seq, at_ms, state, attempt)
        SELECT id, 1, {now}, state, 0 FROM added
    )
    SELECT id, state FROM added
"""
