"""Jobs: the row, its place in the line, its `job_marks` entries and its events.

The line, the `job_marks` entries and the events stored in the row follow from the old and the new
state, and are written only here (ADR 0018, 0019).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from duly.engine.kinds import JOB, StoredJob, is_waiting
from duly.engine.transaction import Change, Key
from duly.model.events import JobEvent
from duly.model.jobs import FINAL, Job, JobState, retry_text
from duly.stores.sql.bulk import chunks, insert_all
from duly.stores.sql.db import Db
from duly.stores.sql.items.mapped import DEFAULT, Mapped, Values, changed
from duly.stores.sql.rows import line, markers
from duly.stores.sql.rows.job_events import IN_THE_ROW, attempt_events
from duly.stores.sql.rows.jobs import job_of


def stored_job_of(row: Row[Any]) -> StoredJob:
    """Return the item stored in a row."""
    return StoredJob(job_of(row), row.place)


def job_values(item: StoredJob) -> Values:
    """Return the columns of a job's row that its item determines."""
    job = item.job
    return {
        "id": job.id,
        "action": job.action,
        "queue": job.queue,
        "workspace": job.workspace,
        "scope": job.scope,
        "state": job.state.value,
        "priority": job.priority,
        "place": item.place,
        "run_at_ms": job.run_at_ms,
        "created_at_ms": job.created_at_ms,
        "finished_at_ms": job.finished_at_ms,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "careful": int(job.start_mode),
        "fence": job.fence,
        "events": job.events,
        "retry": retry_text(job.retry),
        "timeout_ms": job.timeout_ms,
        "lease_until_ms": job.lease_until_ms,
        "unstarted": job.unstarted,
        "cancel_asked": int(job.cancel_asked),
        "idempotency_key": job.key,
        "schedule_id": job.schedule_id,
        "nominal_ms": job.nominal_ms,
        "policies": job.policies,
        "turn": job.turn,
        "in_line": int(job.in_line),
        "waits": int(is_waiting(job)),
        "correlation_id": job.correlation_id,
        "metadata": job.metadata,
        "input": job.input,
        "result": job.result,
        "error": job.error,
        "progress": job.progress,
    }


class JobTable(Mapped[StoredJob]):
    """The table of jobs, with the rows of other tables that follow from their states."""

    def write_jobs(
        self,
        db: Db,
        changes: Mapping[Key, Change],
        events: Sequence[JobEvent],
        stored: Mapping[Key, Row[Any]],
    ) -> None:
        """Write jobs and their events; `told` holds the rows as they were read."""
        by_job: dict[str, list[JobEvent]] = defaultdict(list)
        for event in events:
            by_job[event.job_id].append(event)
        # Markers and places depend on the old rows, so they are removed before the rows change.
        self._leave_marks(db, changes)
        _leave_line(db, changes)
        removed = [str(key[0]) for key, each in changes.items() if each.after is None]
        _forget_events(db, removed)
        self.write(db, {key: each for key, each in changes.items() if not _is_update(each)})
        self._update_jobs(db, [each for each in changes.values() if _is_update(each)], by_job)
        self._write_events(db, changes, by_job, stored)
        _enter_line(db, changes)
        _add_marks(db, changes)

    def _update_jobs(
        self, db: Db, changes: Sequence[Change], events: Mapping[str, Sequence[JobEvent]]
    ) -> None:
        rows: list[tuple[Values, Values]] = []
        for before, after in changes:
            whole = job_values(after)
            values = changed(job_values(before), whole)
            values |= _attempt_values(after.job, events.get(after.job.id, ()))
            if db.dialect.tracks_entries and values.get("waits") == 1:
                # It waits again: searches that skip dead entries must find it (ADR 0031).
                values["entered"] = DEFAULT
            rows.append((whole, values))
        self.set_values(db, rows)

    def _write_events(
        self,
        db: Db,
        changes: Mapping[Key, Change],
        events: Mapping[str, Sequence[JobEvent]],
        stored: Mapping[Key, Row[Any]],
    ) -> None:
        """Write events, except those of an attempt that are stored in the job's row."""
        moved_on: list[JobEvent] = []
        new: list[JobEvent] = []
        for key, change in changes.items():
            own = events.get(str(key[0]), ())
            if change.after is None or not own:
                continue
            if key in stored:
                moved_on += attempt_events(stored[key])
            kept = _told_by_row(change.after.job, own)
            new += [event for event in own if event.seq not in kept]
        table = db.tables.job_events
        if moved_on:
            # Older releases wrote some of them at once, so they may exist.
            rows = [event._asdict() for event in moved_on]
            db.connection.execute(db.dialect.insert_or_ignore(table), rows)
        insert_all(db, table, [_event_values(event) for event in new])

    def _leave_marks(self, db: Db, changes: Mapping[Key, Change]) -> None:
        left = [
            markers.Ended(before.job.state, before.job.finished_at_ms, before.job.id)
            for before, after in changes.values()
            if before is not None
            and before.job.state in FINAL
            and (after is None or after.job.state is not before.job.state)
        ]
        markers.strike(db, left)


def _is_update(change: Change) -> bool:
    return change.before is not None and change.after is not None


def _event_values(event: JobEvent) -> Values:
    return event._asdict() | {"state": event.state.value}


def _attempt_values(job: Job, events: Sequence[JobEvent]) -> Values:
    """Return the columns about the attempt, from the events of this transaction."""
    values: Values = {}
    for event in events:
        if event.state is JobState.PROCESSING:
            values |= {"claimed_at_ms": event.at_ms, "worker": job.worker}
        elif event.state is JobState.SUCCEEDED:
            values["took_ms"] = event.took_ms
    return values


def _told_by_row(job: Job, events: Sequence[JobEvent]) -> set[int]:
    """Return the numbers of the events that the job's row now stores."""
    if job.state not in IN_THE_ROW:
        return set()
    first = job.events - (job.state is JobState.SUCCEEDED)
    return {event.seq for event in events if event.seq >= first}


def _forget_events(db: Db, job_ids: Sequence[str]) -> None:
    if job_ids:
        db.run("DELETE FROM {p}job_events WHERE job_id IN :ids", ids=sorted(job_ids))


def _leave_line(db: Db, changes: Mapping[Key, Change]) -> None:
    left = [
        before.job.id
        for before, after in changes.values()
        if before is not None and _line_place(before) not in (None, _line_place(after))
    ]
    for chunk in chunks(sorted(left)):
        line.leave(db, chunk)


def _enter_line(db: Db, changes: Mapping[Key, Change]) -> None:
    entered = [
        after.job.id
        for before, after in changes.values()
        if after is not None and _line_place(after) not in (None, _line_place(before))
    ]
    for chunk in chunks(sorted(entered)):
        line.enter(db, chunk)


def _line_place(item: StoredJob | None) -> tuple[str, int, str] | None:
    if item is None:
        return None
    job = item.job
    return (job.queue, item.place, job.id) if job.state is JobState.QUEUED else None


def _add_marks(db: Db, changes: Mapping[Key, Change]) -> None:
    """Add markers for jobs that were leased or ended, one for each state and time."""
    marks: dict[tuple[JobState, int], list[str]] = defaultdict(list)
    for before, after in changes.values():
        mark = None if after is None else _mark(after.job)
        if mark is not None and (before is None or _mark(before.job) != mark):
            marks[mark].append(after.job.id)
    for (state, at_ms), ids in sorted(marks.items()):
        markers.add(db, state, at_ms, ids)


def _mark(job: Job) -> tuple[JobState, int] | None:
    """Return the state and time for the marker of a leased or ended job, else None."""
    at_ms = job.finished_at_ms if job.state in FINAL else job.lease_until_ms
    return None if at_ms is None else (job.state, at_ms)


JOBS = JobTable(JOB, "jobs", ("id",), stored_job_of, job_values)
