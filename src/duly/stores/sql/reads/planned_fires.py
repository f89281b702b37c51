"""The schedules whose next run is already planned.

A planner creates jobs ahead of their time, so the index row of a schedule is later than they are.
Waiting jobs are indexed by queue and run time: each queue is read from its earliest job on.
"""

from __future__ import annotations

from functools import lru_cache

from duly.model.summaries import MAX_COUNT, PlannedFire
from duly.rules.checks import check_limit
from duly.stores.sql.db import Db, tuples

_MAX_QUEUES = 100
_QUEUES = (
    "WITH RECURSIVE later(queue, depth) AS ("
    "SELECT (SELECT queue FROM {p}jobs WHERE waits = 1 ORDER BY queue LIMIT 1), 1 "
    "UNION ALL SELECT (SELECT j.queue FROM {p}jobs j WHERE j.waits = 1 AND j.queue > later.queue "
    "ORDER BY j.queue LIMIT 1), depth + 1 "
    "FROM later WHERE later.queue IS NOT NULL AND depth < :most) "
    "SELECT queue FROM later WHERE queue IS NOT NULL"
)


def next_planned(db: Db, limit: int = 10, look: int = 1_000) -> list[PlannedFire]:
    """Return the first planned run of each schedule, earliest first, from about `look` jobs."""
    check_limit(limit)
    check_limit(look, MAX_COUNT)
    queues = list(db.run(_QUEUES, most=_MAX_QUEUES).scalars())
    if not queues:
        return []
    named = {f"queue_{number}": queue for number, queue in enumerate(queues)}
    look = max(1, look // len(queues))
    found = db.run(_statement(len(queues)), **named, look=look, limit=limit)
    return [PlannedFire(*row) for row in tuples(found)]


@lru_cache(maxsize=64)
def _statement(queues: int) -> str:
    parts = " UNION ALL ".join(
        "SELECT * FROM (SELECT schedule_id, run_at_ms, state FROM {p}jobs "
        f"WHERE waits = 1 AND queue = :queue_{number} ORDER BY run_at_ms LIMIT :look) q{number}"
        for number in range(queues)
    )
    return (
        f"SELECT schedule_id, min(run_at_ms) FROM ({parts}) w WHERE schedule_id IS NOT NULL "
        "AND state = 'scheduled' GROUP BY schedule_id ORDER BY 2, 1 LIMIT :limit"
    )
