"""Bounded reads of jobs for pages, and the audit log.

Every statement follows an index and stops at its limit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import insert

from duly.model.jobs import ALL_QUEUES, FINAL, JobState
from duly.model.summaries import (
    ENDS,
    MAX_COUNT,
    AuditEntry,
    Backlog,
    EndCount,
    QueueCount,
    WorkspaceCount,
)
from duly.rules.checks import check_audit, check_limit
from duly.rules.line_counts import AllQueues, queue_count
from duly.stores.sql.db import Db
from duly.stores.sql.logs import audit_entry_of
from duly.stores.sql.reads.job_searches import IN_LINE, NEWEST_MARKS, PARTS
from duly.stores.sql.rows import markers

_WAITING = (
    IN_LINE % "'queued' AS state, 1 AS jobs",
    *(part % "state, 1 AS jobs" for part in PARTS[JobState.SCHEDULED]),  # includes retrying jobs
    *(part % "state, 1 AS jobs" for part in PARTS[JobState.PROCESSING]),
)
_ENDED = tuple(
    f"SELECT '{state}' AS state, jobs FROM ({NEWEST_MARKS % state}) AS part"
    for state in sorted(FINAL)
)
# Limits of counts are sub-selects: with a known limit PostgreSQL may read and sort the whole queue.
_QUEUES = """
WITH RECURSIVE waiting(queue) AS (
    SELECT (SELECT queue FROM {p}job_line ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM {p}job_line j WHERE j.queue > waiting.queue
            ORDER BY j.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL
), later(queue) AS (
    SELECT (SELECT queue FROM {p}jobs WHERE waits = 1 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM {p}jobs j WHERE j.waits = 1 AND j.queue > later.queue
            ORDER BY j.queue LIMIT 1)
    FROM later WHERE later.queue IS NOT NULL
), lined AS (
    SELECT queue, count(*) AS jobs FROM (SELECT queue FROM {p}jobs
        WHERE in_line = 1 ORDER BY schedule_id, run_at_ms, nominal_ms, id LIMIT :look) l
    GROUP BY queue
), running AS (
    SELECT queue, count(*) AS jobs FROM <processing> r GROUP BY queue
), died AS (
    SELECT queue, count(*) AS jobs FROM <dead> d GROUP BY queue
), known AS (
    SELECT queue FROM waiting WHERE queue IS NOT NULL
    UNION SELECT queue FROM later WHERE queue IS NOT NULL
    UNION SELECT queue FROM lined UNION SELECT queue FROM running
    UNION SELECT queue FROM died UNION SELECT queue FROM {p}queues WHERE queue <> '<all>'
)
SELECT known.queue,
    <queued> AS queued,
    <later> + COALESCE((SELECT jobs FROM lined WHERE lined.queue = known.queue), 0) AS later,
    COALESCE((SELECT jobs FROM running WHERE running.queue = known.queue), 0) AS processing,
    COALESCE((SELECT jobs FROM died WHERE died.queue = known.queue), 0) AS dead,
    (SELECT j.run_at_ms FROM {p}job_line j WHERE j.queue = known.queue
        ORDER BY j.place, j.id LIMIT 1) AS first_run_at_ms,
    COALESCE((SELECT SUM(jobs) FROM lined), 0) AS all_waiting,
    COALESCE((SELECT SUM(jobs) FROM running), 0) AS all_processing,
    COALESCE((SELECT SUM(jobs) FROM died), 0) AS all_dead
FROM known ORDER BY known.queue LIMIT :limit
"""
_QUEUES = _QUEUES.replace("<all>", ALL_QUEUES)
for _state in (JobState.PROCESSING, JobState.DEAD):
    _QUEUES = _QUEUES.replace(f"<{_state}>", markers.concerned(_state))
_QUEUED = """(SELECT count(*) FROM (SELECT 1 AS one FROM {p}job_line j WHERE j.queue = <queue>
        ORDER BY j.place, j.id LIMIT {limit :look}) q)"""
_LATER = """(SELECT count(*) FROM (SELECT 1 AS one FROM {p}jobs j WHERE j.waits = 1
        AND j.queue = <queue> ORDER BY j.run_at_ms, j.id LIMIT {limit :look}) q)"""
_OF_ONE_QUEUE = f"SELECT {_QUEUED} AS queued, {_LATER} AS later".replace("<queue>", ":queue")
_OF_ALL_QUEUES = _QUEUES.replace("<queued>", _QUEUED.replace("<queue>", "known.queue"))
_OF_ALL_QUEUES = _OF_ALL_QUEUES.replace("<later>", _LATER.replace("<queue>", "known.queue"))
_QUEUES = _QUEUES.replace("<queued>", "0").replace("<later>", "0")
_BACKLOG = f"SELECT count(*) FROM ({IN_LINE % '1 AS one'}) AS q"
_WORKSPACES = """
WITH RECURSIVE pair(workspace, depth) AS (
    SELECT (SELECT workspace FROM {p}job_line WHERE queue = :queue
            ORDER BY workspace LIMIT 1), 1
    UNION ALL
    SELECT (SELECT j.workspace FROM {p}job_line j WHERE j.queue = :queue
            AND j.workspace > pair.workspace ORDER BY j.workspace LIMIT 1), depth + 1
    FROM pair WHERE pair.workspace IS NOT NULL AND depth < :limit
)
SELECT pair.workspace,
    <queued> AS queued,
    (SELECT j.run_at_ms FROM {p}job_line j WHERE j.queue = :queue
        AND j.workspace = pair.workspace ORDER BY j.place, j.id LIMIT 1)
        AS first_run_at_ms
FROM pair WHERE pair.workspace IS NOT NULL ORDER BY pair.workspace
"""
_QUEUED_OF_ONE = """(SELECT count(*) FROM (SELECT 1 AS one FROM {p}job_line j
        WHERE j.queue = :queue AND j.workspace = <workspace>
        ORDER BY j.place, j.id LIMIT :look) q)"""
_WORKSPACE = f"SELECT {_QUEUED_OF_ONE}".replace("<workspace>", ":workspace")
_ALL_WORKSPACES = _WORKSPACES.replace("<queued>", _QUEUED_OF_ONE)
_ALL_WORKSPACES = _ALL_WORKSPACES.replace("<workspace>", "pair.workspace")
_WORKSPACES = _WORKSPACES.replace("<queued>", "0")
_ENDS = (
    "SELECT * FROM (SELECT at_ms - at_ms %% 60000 AS minute_ms, state, jobs FROM {p}job_marks "
    "WHERE state = '%s' AND at_ms >= :since_ms ORDER BY at_ms DESC, seq DESC LIMIT :look) s"
)


def count_states(db: Db, most: int = 10_000) -> dict[JobState, int]:
    """Count jobs by state, each up to `most`."""
    check_limit(most, MAX_COUNT)
    found = db.run(
        "SELECT state, SUM(jobs) AS jobs "
        f"FROM ({' UNION ALL '.join(_WAITING + _ENDED)}) c GROUP BY state",
        look=most,
    )
    return {JobState(row.state): min(int(row.jobs), most) for row in sorted(found)}


def count_queues(db: Db, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
    """Return queues by name that have waiting, running or dead jobs or are configured."""
    check_limit(most, MAX_COUNT)
    check_limit(limit)
    counts: list[QueueCount] = []
    statement = _OF_ALL_QUEUES if db.dialect.correlates_derived_tables else _QUEUES
    for row in db.run(statement, look=most, limit=limit).all():
        queued, later = row.queued, row.later
        if not db.dialect.correlates_derived_tables:
            own = db.run(_OF_ONE_QUEUE, queue=row.queue, look=most).one()
            queued, later = queued + own.queued, later + own.later
        count = QueueCount(row.queue, queued, later, row.processing, row.dead, row.first_run_at_ms)
        everything = AllQueues(*map(int, (row.all_waiting, row.all_processing, row.all_dead)))
        counts.append(queue_count(count, everything, most))
    return counts


def count_backlog(db: Db, most: int = 10_000) -> Backlog:
    """Count queued jobs up to `most`; above that, return the database's estimate."""
    check_limit(most, MAX_COUNT)
    counted = db.run(_BACKLOG, look=most).scalar_one()
    if counted < most:
        return Backlog(counted, is_estimate=False)
    return Backlog(max(counted, db.dialect.estimate_line(db)), is_estimate=True)


def count_workspaces(
    db: Db, queue: str, most: int = 1_000, limit: int = 100
) -> list[WorkspaceCount]:
    """Return the workspaces with queued jobs in a queue."""
    check_limit(most, MAX_COUNT)
    check_limit(limit)
    if db.dialect.correlates_derived_tables:
        found = db.run(_ALL_WORKSPACES, queue=queue, look=most, limit=limit)
        return [WorkspaceCount._make(row) for row in found]
    rows = db.run(_WORKSPACES, queue=queue, limit=limit).all()
    return [
        WorkspaceCount(
            row.workspace,
            db.run(_WORKSPACE, queue=queue, workspace=row.workspace, look=most).scalar_one(),
            row.first_run_at_ms,
        )
        for row in rows
    ]


def count_ends(db: Db, since_ms: int, most: int = 50_000) -> list[EndCount]:
    """Count the jobs that ended since `since_ms` by minute and state."""
    check_limit(most, MAX_COUNT)
    parts = " UNION ALL ".join(_ENDS % state for state in ENDS)
    found = db.run(
        f"SELECT minute_ms, state, SUM(jobs) AS jobs FROM ({parts}) e "
        "GROUP BY minute_ms, state ORDER BY minute_ms, state",
        since_ms=since_ms,
        look=most,
    )
    return [EndCount(row.minute_ms, JobState(row.state), int(row.jobs)) for row in found]


def check_writable(db: Db) -> None:
    """Lock the row of the schema table: read-only servers refuse it, and the commit is written."""
    db.run("SELECT version FROM {p}schema {share}").all()


def append_audit(db: Db, entry: AuditEntry) -> AuditEntry:
    """Store an audit entry; return it with its number and time."""
    check_audit(entry)
    now_ms = db.now_ms()
    values = {
        "at_ms": now_ms,
        "actor": entry.by,
        "action": entry.action,
        "target": entry.target,
        "outcome": entry.outcome,
        "detail": entry.detail,
    }
    written = db.connection.execute(insert(db.tables.audit).values(values))
    assert written.inserted_primary_key is not None
    return replace(entry, seq=written.inserted_primary_key[0], at_ms=now_ms)


def list_audit(
    db: Db, *, target: str | None = None, before: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """Return one page of audit entries before a number, newest first."""
    check_limit(limit)
    terms: dict[str, Any] = {}
    if target is not None:
        terms["target = :target"] = target
    if before is not None:
        terms["seq < :before"] = before
    where = f"WHERE {' AND '.join(terms)} " if terms else ""
    given = {term.rpartition(":")[2]: value for term, value in terms.items()}
    found = db.run(
        f"SELECT * FROM {{p}}audit {where}ORDER BY seq DESC LIMIT :limit", limit=limit, **given
    )
    return [audit_entry_of(row) for row in found]
