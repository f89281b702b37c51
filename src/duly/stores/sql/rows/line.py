"""Stations 5 and 6: the line of each queue, a narrow row for each job that is queued.

It stands beside the jobs and not in an index of theirs: taking a job out of the line changes no
index of its row. Whoever makes a job queued puts it in, and whoever claims or ends it takes it out,
in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.queues import Line, WaitingWork
from duly.rules.checks import check_limit
from duly.rules.line_counts import LineCount, works_of
from duly.stores.sql.db import Db

COLUMNS = "queue, place, id, workspace, action, run_at_ms"
_KEY = "queue, place, id"
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
    """Put jobs in line that are queued now."""
    if not ids:
        return
    db.run(
        f"INSERT INTO {{p}}job_line ({COLUMNS}) SELECT {COLUMNS} FROM {{p}}jobs WHERE id IN :ids",
        ids=list(ids),
    )


def leave(db: Db, ids: Sequence[str]) -> None:
    """Take jobs out that stand in line; their rows are ours.

    Those that somebody is about to claim are left to it: it finds that they are queued no longer.
    """
    key = ", ".join(f"l.{name}" for name in _KEY.split(", "))
    same = " AND ".join(f"l.{name} = j.{name}" for name in _KEY.split(", "))
    db.run(
        f"DELETE FROM {{p}}job_line WHERE ({_KEY}) IN (WITH left_by AS MATERIALIZED ("
        f"SELECT {key} FROM {{p}}jobs j JOIN {{p}}job_line l ON {same} "
        "WHERE j.id IN :ids {skip}) SELECT * FROM left_by)",
        ids=list(ids),
    )


def count_line(db: Db, look: int = 1_000, limit: int = 1_000) -> Line:
    """Count queued jobs by queue and action at the head of each line."""
    check_limit(look)
    check_limit(limit)
    works: list[WaitingWork] = []
    for queue in db.run(_QUEUES, limit=limit).scalars().all():
        counts = [LineCount._make(row) for row in db.run(_HEAD, queue=queue, look=look)]
        works += works_of(queue, counts, look)
    return Line(db.now_ms(), works)
