"""Station 7: a transition, written with its event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.events import AttemptStatus
from duly.jobs import FINAL, JobState
from duly.stores.sql.db import Db


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

    Gives their queues. Nobody who moves stands in line any longer.
    """
    state = path[-1]
    rows = db.run(
        f"UPDATE {{p}}jobs SET state = :state, events = events + :steps, in_line = 0, "
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
    if events:
        db.connection.execute(db.tables.job_events.insert(), events)
    return {row.queue for row in rows}
