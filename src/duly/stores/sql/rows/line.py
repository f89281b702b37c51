"""The line of each queue: a narrow row for each queued job.

It is a separate table, so that taking a job out of line changes no index of the job's row. The
transaction that queues a job adds it; the one that claims or ends the job removes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.queues import Line, WaitingWork
from duly.rules.checks import check_limit
from duly.rules.line_counts import LineCount, works_of
from duly.stores.sql.bulk import delete_found
from duly.stores.sql.db import Db

COLUMNS = "queue, place, id, workspace, action, run_at_ms"
_KEY = ("queue", "place", "id")
_QUEUES = """
WITH RECURSIVE waiting(queue, depth) AS (
    SELECT (SELECT queue FROM {p}job_line ORDER BY queue LIMIT 1), 1
    UNION ALL
    SELECT (SELECT j.queue FROM {p}job_line j WHERE j.queue > waiting.queue
            ORDER BY j.queue LIMIT 1), depth + 1
    FROM waiting WHERE waiting.queue IS NOT NULL AND depth < :limit
)
SELECT queue FROM waiting WHERE queue IS NOT NULL ORDER BY queue
"""
_HEAD = (
    "SELECT action, count(*) AS jobs, min(run_at_ms) AS oldest_run_at_ms "
    "FROM (SELECT action, run_at_ms FROM {p}job_line WHERE queue = :queue "
    "ORDER BY place, id LIMIT :look) head GROUP BY action"
)


def enter(db: Db, ids: Sequence[str]) -> None:
    """Add queued jobs to the line."""
    if not ids:
        return
    db.run(
        f"INSERT INTO {{p}}job_line ({COLUMNS}) SELECT {COLUMNS} FROM {{p}}jobs WHERE id IN :ids",
        ids=list(ids),
    )


def leave(db: Db, ids: Sequence[str]) -> None:
    """Remove jobs from the line; the caller holds their rows.

    Entries locked by a claim are skipped: the claim finds that the jobs are no longer queued.
    """
    key = ", ".join(f"l.{name}" for name in _KEY)
    same = " AND ".join(f"l.{name} = j.{name}" for name in _KEY)
    delete_found(
        db,
        "job_line",
        _KEY,
        f"SELECT {key} FROM {{p}}jobs j JOIN {{p}}job_line l ON {same} WHERE j.id IN :ids {{skip}}",
        ids=list(ids),
    )


def count_line(db: Db, look: int = 1_000, limit: int = 1_000) -> Line:
    """Count queued jobs by queue and action among the first `look` of each queue."""
    check_limit(look)
    check_limit(limit)
    works: list[WaitingWork] = []
    for queue in db.run(_QUEUES, limit=limit).scalars().all():
        counts = [LineCount._make(row) for row in db.run(_HEAD, queue=queue, look=look)]
        works += works_of(queue, counts, look)
    return Line(db.now_ms(), works)
