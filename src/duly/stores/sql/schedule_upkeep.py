"""Retention of finished schedules: found by an index of when they finished, deleted in bulk."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete

from duly.job_store import MAX_SWEEP
from duly.rules.checks import check_limit, pruned, pruning_place
from duly.schedules import Schedule
from duly.stores.sql import events
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db
from duly.stores.sql.items.schedules import schedule_of
from duly.upkeep_store import LedgerRetention, SchedulesPruned

_STEP = (
    "SELECT * FROM {p}resources WHERE %s AND finished_at_ms IS NOT NULL "
    "AND finished_at_ms < :edge_ms AND (finished_at_ms, id) > (:at_ms, :id) "
    "ORDER BY finished_at_ms, id LIMIT :limit {skip}"
)
_TEMPORARY = _STEP % "temporary IS NOT NULL"
_FINISHED = _STEP % "state = 'finished'"


def prune_schedules(
    db: Db, retention: LedgerRetention, limit: int, cursor: str | None
) -> SchedulesPruned:
    """Take one step: first those that are deleted after completion, then those kept long enough."""
    check_limit(limit, MAX_SWEEP)
    kind, at_ms, last_id = pruning_place(cursor)
    now_ms = db.now_ms()
    kept_ms = 0 if kind == "temporary" else retention.finished_ms
    if kept_ms is None:
        return SchedulesPruned(0, None)
    found = db.run(
        _TEMPORARY if kind == "temporary" else _FINISHED,
        edge_ms=now_ms + 1 - kept_ms,
        at_ms=at_ms,
        id=last_id,
        limit=limit,
    ).all()
    # Locked, so no edit lets one of them run again meanwhile.
    ended = [schedule_of(row) for row in found if row.state == "finished"]
    removed = _remove(db, [each for each in ended if each.definition.origin != "static"], now_ms)
    if len(found) == limit:
        return SchedulesPruned(removed, f"{kind}:{found[-1].finished_at_ms}/{found[-1].id}")
    return SchedulesPruned(removed, "finished:" if kind == "temporary" else None)


def _remove(db: Db, schedules: Sequence[Schedule], now_ms: int) -> int:
    """Delete those of the schedules of which nothing is under way."""
    table = db.tables.resources
    busy = _busy(db, schedules)
    gone = [each for each in schedules if each.id not in busy]
    for chunk in chunks([each.id for each in gone]):
        db.connection.execute(delete(table).where(table.c.id.in_(chunk)))
    events.append(db, [pruned(each, now_ms) for each in gone])
    return len(gone)


def _busy(db: Db, schedules: Sequence[Schedule]) -> set[str]:
    """Return the ids of schedules with a job or a dispatch that has not ended."""
    busy: set[str] = set()
    for chunk in chunks([each.id for each in schedules]):
        jobs = db.run(
            "SELECT DISTINCT schedule_id FROM {p}jobs WHERE schedule_id IN :ids "
            "AND state IN ('scheduled', 'queued', 'processing', 'retrying')",
            ids=list(chunk),
        )
        busy |= set(jobs.scalars())
    for chunk in chunks([each.id for each in schedules if each.definition.hand_over == "http"]):
        posts = db.run(
            "SELECT DISTINCT schedule_id FROM {p}occurrences WHERE schedule_id IN :ids "
            "AND state = 'dispatching'",
            ids=list(chunk),
        )
        busy |= set(posts.scalars())
    return busy
