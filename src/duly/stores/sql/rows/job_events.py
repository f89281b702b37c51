"""Job transitions and their events.

The events of a running or succeeded attempt need no rows: the job's row contains them. They are
written when the job moves on, before its row changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from duly.model.events import AttemptStatus, JobEvent
from duly.model.jobs import FINAL, JobId, JobState, StartMode
from duly.rules.outcomes import Finish, mode_after
from duly.stores.sql.db import Db
from duly.stores.sql.rows import line, markers

IN_THE_ROW = frozenset({JobState.PROCESSING, JobState.SUCCEEDED})
"""States whose attempt is stored in the job's row only."""
_STOPPED = Finish(JobId(""), 0, JobState.QUEUED, "failed", 0, isolate=True)
_MODES = " ".join(f"WHEN {mode:d} THEN {mode_after(_STOPPED, mode):d}" for mode in StartMode)
ISOLATED = f"CASE careful {_MODES} END"
"""SQL for the start mode of a job after its handler stopped its worker."""
ATTEMPT = "id, state, events, fence, worker, claimed_at_ms, finished_at_ms, took_ms"


def event_of(row: Row[Any]) -> JobEvent:
    """Return the event stored in a row of `job_events`."""
    found = JobEvent._make(getattr(row, name) for name in JobEvent._fields)
    return found._replace(state=JobState(row.state))


def attempt_events(row: Row[Any]) -> list[JobEvent]:
    """Return the events in the ATTEMPT columns of a job; none if older code wrote them as rows."""
    if row.state not in IN_THE_ROW or row.claimed_at_ms is None:
        return []
    is_ended = row.state == JobState.SUCCEEDED
    number = row.events - is_ended
    begun = JobState.PROCESSING
    events = [JobEvent(row.id, number, row.claimed_at_ms, begun, row.fence, row.worker, None)]
    if is_ended:
        end = JobState.SUCCEEDED
        at_ms, took_ms = row.finished_at_ms, row.took_ms
        ended = JobEvent(row.id, row.events, at_ms, end, row.fence, None, None, None, took_ms)
        events.append(ended)
    return events


def move(
    db: Db,
    ids: Sequence[str],
    path: Sequence[JobState],
    sets: str = "",
    *,
    actor: str | None = None,
    reason: str | None = None,
    ended_as: AttemptStatus | None = None,
    **values: Any,
) -> set[str]:
    """Move locked jobs along a path of states, with an event for each; return their queues.

    The path ends in a final state or `queued`; the jobs no longer wait for their running marker.
    """
    state = path[-1]
    rows = db.run(
        "UPDATE {p}jobs SET state = :state, events = events + :steps, in_line = 0, waits = 0, "
        f"finished_at_ms = {'{now}' if state in FINAL else 'NULL'}{', ' * bool(sets)}{sets} "
        "WHERE id IN :ids RETURNING id, queue, fence, events, {now} AS at_ms",
        state=state.value,
        steps=len(path),
        ids=list(ids),
        **values,
    ).all()
    events = [
        {
            "job_id": row.id,
            "seq": row.events - len(path) + step,
            "at_ms": row.at_ms,
            "state": state.value,
            "attempt": row.fence,
            "actor": actor,
            "reason": reason,
            "ended_as": ended_as,
        }
        for row in rows
        for step, state in enumerate(path, 1)
    ]
    if not rows:
        return set()
    db.connection.execute(db.tables.job_events.insert(), events)
    moved = [row.id for row in rows]
    if path[-1] is JobState.QUEUED:
        line.enter(db, moved)
    else:
        line.leave(db, moved)
        markers.add(db, path[-1], rows[0].at_ms, moved)
    return {row.queue for row in rows}
