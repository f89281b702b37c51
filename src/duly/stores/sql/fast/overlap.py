"""Release running markers in set statements when jobs end.

A transaction that finds a marker taken or releases it locks the marker's row until it ends, so no
job can get in line unnoticed while a marker is passed on. The engine decides who is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from duly.engine.ids import Ids
from duly.engine.jobs.moves import pass_on
from duly.stores.sql.db import Db
from duly.stores.sql.source import transact


def give_back(db: Db, ended: Iterable[tuple[str | None, str]]) -> None:
    """Release the markers of ended jobs, given as (schedule id, job id), to the first in line.

    Markers held by other jobs are left alone.
    """
    pairs = [pair for pair in ended if pair[0] is not None]
    if not pairs:
        return
    freed = db.run(
        "DELETE FROM {p}running WHERE schedule_id IN (SELECT schedule_id FROM {p}running "
        "WHERE schedule_id IN :schedule_ids AND job_id IN :ids ORDER BY schedule_id {lock}) "
        "RETURNING schedule_id",
        schedule_ids=sorted({pair[0] or "" for pair in pairs}),
        ids=[pair[1] for pair in pairs],
    )
    for schedule_id in _with_line(db, sorted(freed.scalars())):
        transact(db, Ids(), pass_on, schedule_id)


def _with_line(db: Db, schedule_ids: Sequence[str]) -> list[str]:
    """Return the schedules that have jobs in line for their marker."""
    if not schedule_ids:
        return []
    rows = db.run(
        "SELECT r.schedule_id FROM "
        f"{db.dialect.records(db.tables.running)} WHERE EXISTS (SELECT 1 FROM {{p}}jobs j "
        "WHERE j.in_line = 1 AND j.schedule_id = r.schedule_id)",
        rows=msgspec.json.encode([{"schedule_id": each} for each in schedule_ids]).decode(),
    )
    return sorted(rows.scalars())
