"""Retention of finished schedules in memory."""

from __future__ import annotations

from duly.job_store import MAX_SWEEP
from duly.jobs import JobState
from duly.schedules import Schedule
from duly.stores.checks import check_limit, pruned, pruning_place
from duly.stores.memory.tables import Tables, document_key, schedule_key
from duly.upkeep_store import LedgerRetention, SchedulesPruned

_UNDER_WAY = frozenset(
    {JobState.SCHEDULED, JobState.QUEUED, JobState.PROCESSING, JobState.RETRYING}
)


def prune_schedules(
    tables: Tables, now_ms: int, retention: LedgerRetention, limit: int, cursor: str | None
) -> SchedulesPruned:
    """Take one step: first those that are deleted after completion, then those kept long enough."""
    check_limit(limit, MAX_SWEEP)
    kind, *place = pruning_place(cursor)
    is_temporary = kind == "temporary"
    kept_ms = 0 if is_temporary else retention.finished_ms
    if kept_ms is None:
        return SchedulesPruned(0, None)
    finished = sorted(
        (_finished_at_ms(tables, each), each.id, each)
        for each in tables.schedules()
        if each.state == "finished"
        and (each.definition.delete_after_completion or not is_temporary)
    )
    later = [each for each in finished if each[0] <= now_ms - kept_ms and [*each[:2]] > place]
    busy = _busy(tables)
    removed = 0
    for _, _, schedule in later[:limit]:
        if schedule.id not in busy and schedule.definition.origin != "static":
            del tables.documents[document_key(schedule_key(schedule))]
            tables.events.append(pruned(schedule, now_ms))
            removed += 1
    if len(later) >= limit:
        at_ms, last_id, _ = later[limit - 1]
        return SchedulesPruned(removed, f"{kind}:{at_ms}/{last_id}")
    return SchedulesPruned(removed, "finished:" if is_temporary else None)


def _finished_at_ms(tables: Tables, schedule: Schedule) -> int:
    told = [
        event.at_ms
        for event in tables.events
        if event.schedule_id == schedule.id and event.kind == "finished"
    ]
    return max([schedule.updated_at_ms, *told])


def _busy(tables: Tables) -> set[str]:
    """Return the ids of schedules with a job or a dispatch that has not ended."""
    jobs = [stored.job for stored in tables.jobs.values()]
    found: set[str] = {schedule_id for schedule_id, _ in tables.posts}
    return found | {job.schedule_id for job in jobs if job.schedule_id and job.state in _UNDER_WAY}
