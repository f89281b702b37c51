"""Bounded reads of jobs for pages, and the audit log.

Every statement follows an index and stops at its limit.
"""

from __future__ import annotations

from typing import Any

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
    (SELECT count(*) FROM (SELECT 1 AS one FROM {p}job_line j WHERE j.queue = known.queue
        ORDER BY j.place, j.id LIMIT (SELECT :look)) q) AS queued,
    (SELECT count(*) FROM (SELECT 1 AS one FROM {p}jobs j WHERE j.waits = 1
        AND j.queue = known.queue ORDER BY j.run_at_ms, j.id LIMIT (SELECT :look)) q)
        + COALESCE((SELECT jobs FROM lined WHERE lined.queue = known.queue), 0) AS later,
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
    (SELECT count(*) FROM (SELECT 1 AS one FROM {p}job_line j WHERE j.queue = :queue
        AND j.workspace = pair.workspace
        ORDER BY j.place, j.id LIMIT :look) q) AS queued,
    (SELECT j.run_at_ms FROM {p}job_line j WHERE j.queue = :queue
        AND j.workspace = pair.workspace ORDER BY j.place, j.id LIMIT 1)
        AS first_run_at_ms
FROM pair WHERE pair.workspace IS NOT NULL ORDER BY pair.workspace
"""
_ENDS = (
    "SELECT * FROM (SELECT at_ms / 60000 * 60000 AS minute_ms, state, jobs FROM {p}job_marks "
    "WHERE state = '%s' AND at_ms >= :since_ms ORDER BY at_ms DESC, seq DESC LIMIT :look) s"
)


def count_states(db: Db, most: int = 10_000) -> dict[JobState, int]:
    """Count jobs by state, each up to `most`."""
    check_limit(most, MAX_COUNT)
    found = db.run(
        "SELECT state, CAST(SUM(jobs) AS integer) AS jobs "
        f"FROM ({' UNION ALL '.join(_WAITING + _ENDED)}) c GROUP BY state",
        look=most,
    )
    return {JobState(row.state): min(row.jobs, most) for row in sorted(found)}


def count_queues(db: Db, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
    """Return queues by name that have waiting, running or dead jobs or are configured."""
    check_limit(most, MAX_COUNT)
    check_limit(limit)
    return [
        queue_count(
            QueueCount(
                row.queue, row.queued, row.later, row.processing, row.dead, row.first_run_at_ms
            ),
            AllQueues(row.all_waiting, row.all_processing, row.all_dead),
            most,
        )
        for row in db.run(_QUEUES, look=most, limit=limit)
    ]


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
    found = db.run(_WORKSPACES, queue=queue, look=most, limit=limit)
    return [WorkspaceCount._make(row) for row in found]


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
    return [EndCount(row.minute_ms, JobState(row.state), row.jobs) for row in found]


def check_writable(db: Db) -> None:
    """Lock the row of the schema table: read-only servers refuse it, and the commit is written."""
    db.run("SELECT version FROM {p}schema {share}").all()


def append_audit(db: Db, entry: AuditEntry) -> AuditEntry:
    """Store an audit entry; return it with its number and time."""
    check_audit(entry)
    row = db.run(
        "INSERT INTO {p}audit (at_ms, actor, action, target, outcome, detail) "
        "VALUES ({now}, :actor, :action, :target, :outcome, :detail) "
        "RETURNING seq, at_ms, actor, action, target, outcome, detail",
        actor=entry.by,
        action=entry.action,
        target=entry.target,
        outcome=entry.outcome,
        detail=entry.detail,
    ).one()
    return audit_entry_of(row)


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
