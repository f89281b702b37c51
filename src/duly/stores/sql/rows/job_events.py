"""Station 7: a transition, written with its event.

The events of an attempt that runs, or that succeeded, need no rows of their own: the job's row says
all of it. They are written down where the job goes on from there, before the row says something
else.
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
"""States whose attempt is told by the job's row alone."""
_STOPPED = Finish(JobId(""), 0, JobState.QUEUED, "failed", 0, isolate=True)
_MODES = " ".join(f"WHEN {mode:d} THEN {mode_after(_STOPPED, mode):d}" for mode in StartMode)
ISOLATED = f"CASE careful {_MODES} END"
"""The start mode of a job after its handler stopped its worker, as SQL."""
ATTEMPT = "id, state, events, fence, worker, claimed_at_ms, finished_at_ms, took_ms"


def event_of(row: Row[Any]) -> JobEvent:
    """Return the event that a row of its own holds."""
    found = JobEvent._make(getattr(row, name) for name in JobEvent._fields)
    return found._replace(state=JobState(row.state))


def attempt_events(row: Row[Any]) -> list[JobEvent]:
    """What the ATTEMPT columns of a job tell; nothing where older code has written it down."""
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
    """Write states along a path, with an event for each, of jobs that are locked already.

    They end, or are queued. Gives their queues. Nobody who moves waits for a turn any longer.
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
