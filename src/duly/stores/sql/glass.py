"""Station 8: what pages read. Every statement follows an index and stops where it is told."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from duly.glass_store import (
    ENDS,
    MAX_COUNT,
    MAX_SAMPLE,
    MINUTE_MS,
    AuditEntry,
    EndCount,
    Glance,
    QueueCount,
    Upcoming,
    WorkspaceCount,
)
from duly.jobs import FINAL, JobState
from duly.stores.checks import SCHEDULES, check_audit, check_limit
from duly.stores.sql import rows
from duly.stores.sql.db import Db
from duly.stores.sql.index import list_rows

OLDEST = 100

# Each names the condition of the partial index that it is to be answered from, and its order: a
# planner that is told LIMIT alone would rather read the table and hope.
_LATER = "state IN ('scheduled', 'retrying')"
_STATES = (
    ("state = 'queued'", "queue, careful, place, id"),
    (f"{_LATER} AND in_line = 0", "queue, run_at_ms, id"),
    (f"{_LATER} AND in_line = 1", "schedule_id, run_at_ms, nominal_ms, id"),
    ("state = 'processing' AND lease_until_ms IS NOT NULL", "lease_until_ms"),
    *((f"state = '{state}' AND finished_at_ms IS NOT NULL", "finished_at_ms") for state in FINAL),
)
_STATE = "SELECT state FROM (SELECT state FROM {p}jobs WHERE %s ORDER BY %s LIMIT :most) s"
_QUEUES = """
WITH RECURSIVE waiting(queue) AS (
    SELECT (SELECT queue FROM {p}jobs WHERE state = 'queued' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM {p}jobs j WHERE j.state = 'queued' AND j.queue > waiting.queue
            ORDER BY j.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL
), later(queue) AS (
    SELECT (SELECT queue FROM {p}jobs WHERE state IN ('scheduled', 'retrying') AND in_line = 0
            ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM {p}jobs j WHERE j.state IN ('scheduled', 'retrying')
            AND j.in_line = 0 AND j.queue > later.queue ORDER BY j.queue LIMIT 1)
    FROM later WHERE later.queue IS NOT NULL
), lined AS (
    SELECT queue, count(*) AS jobs FROM (SELECT queue FROM {p}jobs
        WHERE in_line = 1 ORDER BY schedule_id, run_at_ms, nominal_ms, id LIMIT :most) l
    GROUP BY queue
), running AS (
    SELECT queue, count(*) AS jobs FROM (SELECT queue FROM {p}jobs
        WHERE state = 'processing' AND lease_until_ms IS NOT NULL
        ORDER BY lease_until_ms LIMIT :most) r GROUP BY queue
), died AS (
    SELECT queue, count(*) AS jobs FROM (SELECT queue FROM {p}jobs
        WHERE state = 'dead' AND finished_at_ms IS NOT NULL
        ORDER BY finished_at_ms LIMIT :most) d GROUP BY queue
), known AS (
    SELECT queue FROM waiting WHERE queue IS NOT NULL
    UNION SELECT queue FROM later WHERE queue IS NOT NULL
    UNION SELECT queue FROM lined UNION SELECT queue FROM running
    UNION SELECT queue FROM died UNION SELECT queue FROM {p}queues
)
SELECT known.queue,
    (SELECT count(*) FROM (SELECT 1 AS one FROM {p}jobs j WHERE j.state = 'queued'
        AND j.queue = known.queue ORDER BY j.careful, j.place, j.id LIMIT :most) q) AS queued,
    (SELECT count(*) FROM (SELECT 1 AS one FROM {p}jobs j
        WHERE j.state IN ('scheduled', 'retrying') AND j.in_line = 0
        AND j.queue = known.queue ORDER BY j.run_at_ms, j.id LIMIT :most) q)
        + COALESCE((SELECT jobs FROM lined WHERE lined.queue = known.queue), 0) AS later,
    COALESCE((SELECT jobs FROM running WHERE running.queue = known.queue), 0) AS processing,
    COALESCE((SELECT jobs FROM died WHERE died.queue = known.queue), 0) AS dead,
    (SELECT j.run_at_ms FROM {p}jobs j WHERE j.state = 'queued' AND j.queue = known.queue
        ORDER BY j.careful, j.place, j.id LIMIT 1) AS first_run_at_ms
FROM known ORDER BY known.queue LIMIT :limit
"""
_WORKSPACES = """
WITH RECURSIVE pair(workspace, depth) AS (
    SELECT (SELECT workspace FROM {p}jobs WHERE state = 'queued' AND queue = :queue
            ORDER BY workspace LIMIT 1), 1
    UNION ALL
    SELECT (SELECT j.workspace FROM {p}jobs j WHERE j.state = 'queued' AND j.queue = :queue
            AND j.workspace > pair.workspace ORDER BY j.workspace LIMIT 1), depth + 1
    FROM pair WHERE pair.workspace IS NOT NULL AND depth < :limit
)
SELECT pair.workspace,
    (SELECT count(*) FROM (SELECT 1 AS one FROM {p}jobs j WHERE j.state = 'queued'
        AND j.queue = :queue AND j.workspace = pair.workspace
        ORDER BY j.careful, j.place, j.id LIMIT :most) q) AS queued,
    (SELECT j.run_at_ms FROM {p}jobs j WHERE j.state = 'queued' AND j.queue = :queue
        AND j.workspace = pair.workspace ORDER BY j.careful, j.place, j.id LIMIT 1)
        AS first_run_at_ms
FROM pair WHERE pair.workspace IS NOT NULL ORDER BY pair.workspace
"""
_ENDS = (
    "SELECT minute_ms, state FROM (SELECT finished_at_ms / 60000 * 60000 AS minute_ms, state "
    "FROM {p}jobs WHERE state = '%s' AND finished_at_ms >= :since_ms "
    "ORDER BY finished_at_ms DESC LIMIT :most) s"
)


def count_states(db: Db, most: int = 10_000) -> dict[JobState, int]:
    """Jobs by state, each counted up to `most`."""
    check_limit(most, MAX_COUNT)
    parts = " UNION ALL ".join(_STATE % each for each in _STATES)
    found = db.run(f"SELECT state, count(*) AS jobs FROM ({parts}) c GROUP BY state", most=most)
    return {JobState(row.state): min(row.jobs, most) for row in sorted(found)}


def count_queues(db: Db, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
    """Queues in which something waits, runs or died, or that somebody spoke about."""
    check_limit(most, MAX_COUNT)
    check_limit(limit)
    found = [QueueCount._make(row) for row in db.run(_QUEUES, most=most, limit=limit)]
    return [each._replace(later=min(each.later, most)) for each in found]


def count_workspaces(
    db: Db, queue: str, most: int = 1_000, limit: int = 100
) -> list[WorkspaceCount]:
    """Workspaces with queued jobs in a queue."""
    check_limit(most, MAX_COUNT)
    check_limit(limit)
    found = db.run(_WORKSPACES, queue=queue, most=most, limit=limit)
    return [WorkspaceCount._make(row) for row in found]


def count_ends(db: Db, since_ms: int, most: int = 50_000) -> list[EndCount]:
    """Jobs ended since then by minute and state."""
    check_limit(most, MAX_COUNT)
    parts = " UNION ALL ".join(_ENDS % state for state in ENDS)
    found = db.run(
        f"SELECT minute_ms, state, count(*) AS jobs FROM ({parts}) e "
        "GROUP BY minute_ms, state ORDER BY minute_ms, state",
        since_ms=since_ms,
        most=most,
    )
    return [EndCount(row.minute_ms, JobState(row.state), row.jobs) for row in found]


def upcoming(db: Db, until_ms: int, sample: int = 1_000) -> Upcoming:
    """Rows with a run time before `until_ms`, by minute; and about `sample` of them.

    Reads the index entries of all of them: callers keep the answer for a while.
    """
    check_limit(sample, MAX_SAMPLE)
    counted = db.run(
        f"SELECT run_at_ms / {MINUTE_MS} * {MINUTE_MS} AS minute_ms, count(*) AS fires "
        "FROM {p}schedule_index WHERE run_at_ms IS NOT NULL AND run_at_ms < :until_ms "
        "GROUP BY 1 ORDER BY 1",
        until_ms=until_ms,
    )
    minutes = [(row.minute_ms, row.fires) for row in counted]
    stride = max(1, sum(fires for _, fires in minutes) // sample)
    index = db.tables.schedule_index
    statement = (
        rows.whole(db)
        .where(index.c.run_at_ms.is_not(None), index.c.run_at_ms < until_ms)
        .order_by(index.c.run_at_ms, index.c.priority.desc(), index.c.row_id)
        .limit(2 * sample)
    )
    if stride > 1:
        statement = statement.where(index.c.row_id % stride == 0)
    found = [rows.row_of(row) for row in db.connection.execute(statement)]
    return Upcoming(db.now_ms(), minutes, found, stride)


def glance(db: Db, most: int = 10_000) -> Glance:
    """Due and quarantined rows, and those due for longest."""
    check_limit(most, MAX_COUNT)
    facts = db.run(
        "SELECT {now} AS now_ms, "
        "EXISTS (SELECT 1 FROM {p}schedule_index WHERE run_at_ms IS NOT NULL) AS has_rows, "
        "(SELECT count(*) FROM (SELECT 1 AS one FROM {p}schedule_index WHERE run_at_ms <= {now} "
        "ORDER BY run_at_ms LIMIT :most) d) AS due, "
        "(SELECT count(*) FROM (SELECT 1 AS one FROM {p}schedule_index WHERE error IS NOT NULL "
        "ORDER BY row_id LIMIT :most) q) AS quarantined",
        most=most,
    ).one()
    has_rows = bool(facts.has_rows)
    return Glance(
        facts.now_ms,
        has_rows or _has_active(db),
        has_rows,
        facts.due,
        facts.quarantined,
        list_rows(db, until_ms=facts.now_ms, limit=OLDEST) if facts.due else [],
    )


def _has_active(db: Db) -> bool:
    table = db.tables.resources
    active = select(table.c.id).where(table.c.collection == SCHEDULES, table.c.state == "active")
    return db.connection.execute(active.limit(1)).first() is not None


def append_audit(db: Db, entry: AuditEntry) -> AuditEntry:
    """Keep who did what."""
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
    return _entry(row)


def list_audit(
    db: Db, *, target: str | None = None, before: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """One page of entries, newest first, before a number."""
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
    return [_entry(row) for row in found]


def _entry(row: Any) -> AuditEntry:
    return AuditEntry(
        row.actor, row.action, row.target, row.outcome, row.detail, row.seq, row.at_ms
    )
