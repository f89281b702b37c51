"""What is not late any more in memory: it waits for nothing but a worker, a turn or a tick."""

from __future__ import annotations

from duly.jobs import JobState
from duly.schedules import ScheduleId
from duly.stores.memory import ledger
from duly.stores.memory.tables import Tables


def admitted(tables: Tables, schedule_id: ScheduleId, now_ms: int) -> dict[int, str | None]:
    """Times of a schedule that are queued, in line, or to be posted; why each was planned."""
    found: dict[int, str | None] = {}
    for job, _ in tables.jobs.values():
        if job.schedule_id == schedule_id and (job.state == JobState.QUEUED or job.in_line):
            planned = ledger.planned_of(tables, job)
            if planned is not None:
                found[planned.nominal_ms] = planned.reason
    for key, post in tables.posts.items():
        planned = tables.ledger[key].occurrence
        if key[0] == schedule_id and not post.tries and planned.run_at_ms <= now_ms:
            found[planned.nominal_ms] = planned.reason
    return found
