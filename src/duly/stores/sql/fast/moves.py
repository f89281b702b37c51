"""Promote due jobs.

Rows are locked first; states and events are written together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from duly.engine.ids import Ids
from duly.engine.jobs.jobs import promote_jobs
from duly.model.jobs import JobState
from duly.model.stored_jobs import MAX_SWEEP
from duly.rules.checks import check_limit
from duly.rules.planning import policies_or_usual
from duly.stores.sql.db import Db
from duly.stores.sql.fast.waiting import waiting_queues, waiting_since
from duly.stores.sql.rows.job_events import move
from duly.stores.sql.source import transact


def promote_due(db: Db, limit: int = MAX_SWEEP, queues: Sequence[str] | None = None) -> int:
    """Queue up to `limit` due scheduled and retrying jobs that overlap policies let run."""
    check_limit(limit)
    found: list[Row[Any]] = []
    served = waiting_queues(db) if queues is None else queues
    for queue, from_ms in waiting_since(db, served).items():
        found += db.run(
            "SELECT run_at_ms, id, state, schedule_id, nominal_ms, turn, policies FROM {p}jobs "
            "WHERE waits = 1 AND queue = :queue "
            "AND run_at_ms >= :from_ms AND run_at_ms <= {now} "
            "ORDER BY run_at_ms, id LIMIT {limit :limit} {skip}",
            queue=queue,
            from_ms=from_ms,
            limit=limit,
        ).all()
    if not found:
        return 0
    due = sorted(found, key=lambda row: (row.run_at_ms, row.id))[:limit]
    others = _promote_plain(db, due)
    if others:
        transact(db, Ids(), promote_jobs, others, limit)
    return len(due)


def _promote_plain(db: Db, due: Sequence[Row[Any]]) -> list[str]:
    """Queue jobs without conflicts, in few statements; return the ids of the others.

    On its first promotion, a schedule's job conflicts with other jobs of the schedule in this
    batch, with its own lateness, and with a running marker held by another job.
    """
    groups = Counter(row.schedule_id for row in due if _is_planned(row))
    now_ms = db.now_ms()
    others = [row.id for row in due if _is_planned(row) and groups[row.schedule_id] > 1]
    asking: dict[str, str] = {}
    for row in due:
        if _is_planned(row) and groups[row.schedule_id] == 1:
            if row.run_at_ms < now_ms - policies_or_usual(row.policies).grace_ms:
                others.append(row.id)
            elif row.turn is not None:
                asking[row.schedule_id] = row.id
    # All callers take markers in the order of schedule ids, which prevents deadlocks.
    held: set[str] = set()
    if asking:
        decided = {row.schedule_id for row in due if _is_planned(row)} - asking.keys()
        held = set(db.fast.add_markers(db, dict(sorted(asking.items())), decided))
    others += [asking[schedule_id] for schedule_id in held]
    left = set(others)
    plain = [row.id for row in due if row.id not in left]
    if plain:
        queues = move(db, plain, [JobState.QUEUED])
        db.dialect.tell(db, {f"queue:{name}" for name in queues})
    return others


def _is_planned(row: Row[Any]) -> bool:
    """Return whether a job comes from a schedule and is promoted for the first time."""
    return row.state == JobState.SCHEDULED and row.policies is not None
