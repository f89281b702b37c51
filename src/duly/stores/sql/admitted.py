"""Station 5: what is not late any more, since it waits for nothing but a worker, a turn or a tick.

Asked by the writer of a schedule before it takes such times back, so that it can plan them again
as what they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from duly.schedules import ScheduleId
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples

Reasons = dict[ScheduleId, dict[int, str | None]]
"""By schedule and nominal time: the reason that it was planned for."""


def admitted(
    db: Db, schedule_ids: Collection[ScheduleId], posted: Sequence[ScheduleId], now_ms: int
) -> Reasons:
    """Times of schedules that are queued, in line, or to be posted by the next tick.

    Nothing is locked, for whoever withdraws holds jobs by their ids, all at once. What is queued
    between the two was decided over by the same policies a moment ago.
    """
    found: Reasons = defaultdict(dict)
    for chunk in chunks(sorted(schedule_ids)):
        jobs = db.run(
            "SELECT j.schedule_id, j.nominal_ms, o.reason FROM {p}jobs j "
            "JOIN {p}occurrences o ON o.job_id = j.id WHERE j.schedule_id IN :ids "
            "AND j.state IN ('scheduled', 'queued') AND (j.state = 'queued' OR j.in_line = 1) "
            "AND o.state = 'planned'",
            ids=list(chunk),
        )
        _add(found, tuples(jobs))
    for chunk in chunks(sorted(posted)):
        posts = db.run(
            "SELECT schedule_id, nominal_ms, reason FROM {p}occurrences WHERE schedule_id IN :ids "
            "AND state = 'dispatching' AND tries = 0 AND run_at_ms <= :now_ms",
            ids=list(chunk),
            now_ms=now_ms,
        )
        _add(found, tuples(posts))
    return found


def _add(found: Reasons, rows: Iterable[tuple[Any, ...]]) -> None:
    for schedule_id, nominal_ms, reason in rows:
        found[schedule_id][nominal_ms] = reason
