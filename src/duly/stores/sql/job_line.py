"""Stations 5 and 6: the line of each queue, a narrow row for each job that is queued.

It stands beside the jobs and not in an index of theirs: taking a job out of the line changes no
index of its row. Whoever makes a job queued puts it in, and whoever claims or ends it takes it out,
in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.stores.sql.db import Db

COLUMNS = "queue, careful, place, id, workspace, action, run_at_ms"
_KEY = "queue, careful, place, id"


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
