"""Measures a burst: many schedules due at the same moment, drained into jobs.

Ours is the planner's verb with schedules of default policies. The upper limit is psycopg on the
same tables in the same batches: one transaction claims rows with SKIP LOCKED, reads rules and
inputs by one join, inserts missing ledger rows, copies jobs and their events, and advances the
rows. All it writes is serialised beforehand, and it takes no running marker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import psycopg

from benchmarks.scheduler_rows import FLOW, Desk, Lost, now_ms
from duly.model.plans import PlanRequest
from duly.stores.port import Store

BATCH = 1_000

CLAIM = (
    "SELECT row_id, nominal_ms, run_at_ms, runs_left FROM duly_schedule_index "
    f"WHERE hand_over = 'jobs' AND flow = '{FLOW}' AND run_at_ms <= %s AND trigger_version <= 1 "
    "ORDER BY run_at_ms, priority DESC, row_id LIMIT %s FOR UPDATE SKIP LOCKED"
)
READ = (
    "SELECT r.row_id, r.schedule_id, r.flow, r.scope, r.name, r.trigger_json, r.policies, d.body "
    "FROM duly_schedule_rules r LEFT JOIN duly_resources d ON d.id = r.schedule_id "
    "WHERE r.row_id = ANY((SELECT %s::text)::bigint[])"
)
LEDGER_COLUMNS = (
    "schedule_id text, nominal_ms bigint, flow text, scope text, name text, run_at_ms bigint, "
    "state text, missed integer, row_version bigint, position integer, at_ms bigint, "
    "until_ms bigint, times integer, job_id text"
)
LEDGER_NAMES = ", ".join(part.split()[0] for part in LEDGER_COLUMNS.split(", "))
LEDGER = (
    f"INSERT INTO duly_occurrences ({LEDGER_NAMES}) SELECT {LEDGER_NAMES} "
    f"FROM json_to_recordset(%s::json) AS r ({LEDGER_COLUMNS}) "
    "ON CONFLICT (schedule_id, nominal_ms) DO NOTHING RETURNING schedule_id, nominal_ms"
)
JOBS = (
    "COPY duly_jobs (id, action, queue, workspace, scope, state, priority, place, run_at_ms, "
    "created_at_ms, attempts, max_attempts, careful, fence, events, retry, timeout_ms, "
    "cancel_asked, schedule_id, nominal_ms, policies, turn, in_line, input) FROM STDIN"
)
EVENTS = "COPY duly_job_events (job_id, seq, at_ms, state, attempt) FROM STDIN"
LINE = "COPY duly_job_line (queue, place, id, workspace, action, run_at_ms) FROM STDIN"
ADVANCE = (
    "UPDATE duly_schedule_index AS i SET nominal_ms = v.nominal_ms, run_at_ms = v.nominal_ms, "
    "version = i.version + 1 FROM unnest((SELECT %s::text)::bigint[], (SELECT %s::text)::bigint[]) "
    "AS v (row_id, nominal_ms) WHERE i.row_id = v.row_id"
)


@dataclass(frozen=True, slots=True)
class Burst:
    """Schedules drained per second, per round."""

    count: int
    ours: list[float]
    bare: list[float]

    @property
    def ratio(self) -> float:
        """Return ours / bare, the median of the pairs."""
        return median(a / b for a, b in zip(self.ours, self.bare, strict=True))


async def measure_burst(url: str, store: Store, desk: Desk, count: int, rounds: int) -> Burst:
    """Drain the same schedules with ours and the bare driver, alternating."""
    ours, bare = [], []
    for _ in range(rounds):
        desk.reset(now_ms())
        ours.append(await drain(store, desk, count))
        due_ms = now_ms()
        desk.reset(due_ms)
        bare.append(_drain_bare(url, desk, due_ms, count))
    return Burst(count, ours, bare)


async def drain(store: Store, desk: Desk, count: int) -> float:
    """Plan until nothing is due and check the result; return schedules per second."""
    started = perf_counter()
    while (await store.plan_occurrences(PlanRequest(limit=BATCH))).rows:
        pass
    rate = count / (perf_counter() - started)
    _check(desk, count)
    return rate


def _check(desk: Desk, count: int) -> None:
    """Check that each schedule fired once, since a drain that loses some would look fast."""
    found = [desk.count(what) for what in ("jobs WHERE state = 'queued'", "occurrences")]
    if found != [count, count]:
        raise Lost(f"{count} schedules were due; jobs and ledger rows: {found}")


def _drain_bare(url: str, desk: Desk, due_ms: int, count: int) -> float:
    prepared = _prepare(desk, due_ms)
    with psycopg.connect(url) as connection:
        started = perf_counter()
        while _step(connection, prepared, due_ms):
            pass
        rate = count / (perf_counter() - started)
    _check(desk, count)
    return rate


@dataclass(frozen=True, slots=True)
class _Written:
    """The serialised writes for one row."""

    job: str
    event: str
    line: str
    entry: str


def _prepare(desk: Desk, due_ms: int) -> dict[int, _Written]:
    rows = desk.run(
        "SELECT r.row_id, r.schedule_id, r.flow, r.scope, r.name, d.body FROM duly_schedule_rules r"
        " JOIN duly_resources d ON d.id = r.schedule_id"
    )
    return {row[0]: _written(row, due_ms) for row in rows}


def _written(row: Any, due_ms: int) -> _Written:
    number, schedule_id, flow, scope, name, body = row
    job_id = f"job_{number:032x}"
    data = json.dumps(json.loads(body)["input"])
    job = (
        f"{job_id}\t{flow}.send\tdefault\t{scope}\t{scope}\tqueued\t0\t{due_ms}\t{due_ms}\t"
        f'{due_ms}\t0\t5\t0\t0\t1\t{{"attempts":5}}\t300000\t0\t{schedule_id}\t{due_ms}\t{{}}\t'
        f"asks\t0\t{data}\n"
    )
    entry = {
        "schedule_id": schedule_id,
        "nominal_ms": due_ms,
        "flow": flow,
        "scope": scope,
        "name": name,
        "run_at_ms": due_ms,
        "state": "planned",
        "missed": 0,
        "row_version": 0,
        "position": 0,
        "at_ms": due_ms,
        "until_ms": due_ms,
        "times": 1,
        "job_id": job_id,
    }
    event = f"{job_id}\t1\t{due_ms}\tqueued\t0\n"
    line = f"default\t{due_ms}\t{job_id}\t{scope}\t{flow}.send\t{due_ms}\n"
    return _Written(job, event, line, json.dumps(entry))


def _step(connection: psycopg.Connection[Any], prepared: dict[int, _Written], due_ms: int) -> bool:
    with connection.transaction(), connection.cursor() as cursor:
        numbers = [row[0] for row in cursor.execute(CLAIM, [due_ms, BATCH]).fetchall()]
        if not numbers:
            return False
        cursor.execute(READ, [_array(numbers)]).fetchall()
        rows = [prepared[number] for number in numbers]
        cursor.execute(LEDGER, [f"[{','.join([row.entry for row in rows])}]"]).fetchall()
        with cursor.copy(JOBS) as copy:
            copy.write("".join([row.job for row in rows]))
        with cursor.copy(EVENTS) as copy:
            copy.write("".join([row.event for row in rows]))
        with cursor.copy(LINE) as copy:
            copy.write("".join([row.line for row in rows]))
        later = [due_ms + 86_400_000] * len(numbers)
        cursor.execute(ADVANCE, [_array(numbers), _array(later)])
    return True


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
