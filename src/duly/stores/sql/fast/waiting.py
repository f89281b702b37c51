"""Jobs that wait for their run time: their queues and the first run times."""

from __future__ import annotations

from collections.abc import Sequence

from duly.stores.sql.db import Db
from duly.stores.sql.gaps.search import WAITING, search_alone


def waiting_since(db: Db, queues: Sequence[str]) -> dict[str, int]:
    """Return a lower bound of the run times of waiting jobs, by queue."""
    if not db.dialect.tracks_entries or not queues:
        return dict.fromkeys(queues, 0)
    found = search_alone(db, [(WAITING, (queue,)) for queue in queues])
    firsts = {parts[0]: gaps.first for (_, parts), gaps in found.items()}
    return {queue: first for queue, first in firsts.items() if first is not None}


def waiting_queues(db: Db) -> list[str]:
    """Return the queues that have waiting jobs: one index probe per queue, not per job."""
    rows = db.run(
        "WITH RECURSIVE found(queue) AS ("
        "SELECT (SELECT queue FROM {p}jobs WHERE waits = 1 ORDER BY queue LIMIT 1) "
        "UNION ALL SELECT (SELECT j.queue FROM {p}jobs j WHERE j.waits = 1 "
        "AND j.queue > found.queue ORDER BY j.queue LIMIT 1) "
        "FROM found WHERE found.queue IS NOT NULL) "
        "SELECT queue FROM found WHERE queue IS NOT NULL"
    )
    return list(rows.scalars())
