"""Station 7: transitions asked for, and those that time brings.

Every move locks its rows, asks the transition table, and writes state and events together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from duly.job_store import MAX_SWEEP, JobRefused, Retention
from duly.jobs import FINAL, Job, JobId, JobState, may_go
from duly.ledger import OccurrenceState
from duly.outcomes import LEASE_EXPIRED, Loss, decide_loss
from duly.planning import policies_or_usual
from duly.stores.checks import check_limit
from duly.stores.sql import job_marks, ledger, turns
from duly.stores.sql.db import Db, LostRace
from duly.stores.sql.gap_search import WAITING, search_alone
from duly.stores.sql.job_events import move, write_attempts
from duly.stores.sql.job_rows import job_of
from duly.turns import Unstarted, decide_late


def release_expired(db: Db, limit: int = MAX_SWEEP) -> int:
    """Move on jobs whose lease has ended."""
    check_limit(limit)
    columns = "id, queue, schedule_id, fence, careful AS start_mode, attempts, max_attempts, "
    columns += "unstarted, cancel_asked"
    lost = job_marks.take(db, {JobState.PROCESSING: 0}, columns, limit)
    if not lost:
        return 0
    by_loss: dict[Loss, list[str]] = defaultdict(list)
    for row in lost:
        by_loss[decide_loss(row)].append(row.id)
    write_attempts(db, [row.id for row in lost])
    for loss, ids in sorted(by_loss.items()):
        path = loss.path
        sets = f"lease_until_ms = NULL, careful = {loss.start_mode:d}"
        if loss.charge:
            sets += f", attempts = attempts + ({loss.charge})"
        if path[-1] is JobState.DEAD:
            sets += f", error = '{LEASE_EXPIRED}'"
        move(db, ids, path, sets, reason=LEASE_EXPIRED, ended_as="lost")
        if path[-1] is not JobState.QUEUED:
            scheduled = {row.id for row in lost if row.schedule_id is not None}
            ledger.follow_jobs(db, scheduled.intersection(ids), path[-1])
            turns.give_back(db, [(row.schedule_id, row.id) for row in lost if row.id in ids])
    db.dialect.tell(db, {f"queue:{row.queue}" for row in lost})
    return len(lost)


def promote_due(db: Db, limit: int = MAX_SWEEP, queues: Sequence[str] | None = None) -> int:
    """Queue scheduled and retrying jobs whose run time has come, if it is their turn."""
    check_limit(limit)
    found: list[Row[Any]] = []
    served = waiting_queues(db) if queues is None else queues
    for queue, from_ms in _waiting_since(db, served).items():
        found += db.run(
            "SELECT run_at_ms, id, state, schedule_id, nominal_ms, turn, policies FROM {p}jobs "
            "WHERE waits = 1 AND queue = :queue "
            "AND run_at_ms >= :from_ms AND run_at_ms <= {now} "
            "ORDER BY run_at_ms, id LIMIT (SELECT :limit) {skip}",
            queue=queue,
            from_ms=from_ms,
            limit=limit,
        ).all()
    due = sorted(found, key=lambda row: (row.run_at_ms, row.id))[:limit]
    planned = [row for row in due if _is_planned(row)]
    # Those who hold a marker already come first: one that gives way must be where it can be found.
    turns.queue(db, [row.id for row in due if not _is_planned(row)])
    if planned:
        held = _hold_back(db, planned)
        turns.queue(db, [row.id for row in planned if row.id not in held])
    return len(due)


def _waiting_since(db: Db, queues: Sequence[str]) -> dict[str, int]:
    """Return the first run time that is waited for, of queues in which jobs wait."""
    if not db.dialect.tracks_entries or not queues:
        return dict.fromkeys(queues, 0)
    found = search_alone(db, [(WAITING, (queue,)) for queue in queues])
    firsts = {parts[0]: gaps.first for (_, parts), gaps in found.items()}
    return {queue: first for queue, first in firsts.items() if first is not None}


def _is_planned(row: Row[Any]) -> bool:
    """Whether it comes from a schedule, and for the first time."""
    return row.state == JobState.SCHEDULED and row.policies is not None


def _hold_back(db: Db, planned: Sequence[Row[Any]]) -> set[JobId]:
    """Take out schedules' jobs that come too late, or while another has not ended."""
    late = _late(db, planned)
    for kind, ids in late.items():
        move(db, ids, [JobState.CANCELLED], reason=f"missed: {kind}")
        ledger.end_planned(db, ids, OccurrenceState.MISSED, kind)
    missed = {job_id for ids in late.values() for job_id in ids}
    asking = [
        turns.Candidate(
            row.schedule_id, row.run_at_ms, row.nominal_ms, row.id, row.turn, row.policies
        )
        for row in planned
        if row.turn is not None and row.id not in missed
    ]
    if not asking:
        return missed
    admission = turns.admit(db, asking)
    if admission.in_line:
        db.run(
            "UPDATE {p}jobs SET in_line = 1, waits = 0 WHERE id IN :ids",
            ids=sorted(admission.in_line),
        )
    for job_id, reason in admission.skipped.items():
        turns.skip(db, [job_id], reason)
    return missed | admission.in_line | admission.skipped.keys()


def _late(db: Db, planned: Sequence[Row[Any]]) -> dict[str, list[JobId]]:
    """Jobs that the misfire policies of their schedules swallow, by the kind of policy."""
    now_ms = db.now_ms()
    by_schedule: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in planned:
        by_schedule[row.schedule_id].append(row)
    late: dict[str, list[JobId]] = defaultdict(list)
    for group in by_schedule.values():
        policies = policies_or_usual(group[-1].policies)
        if group[0].run_at_ms >= now_ms - policies.grace_ms:
            continue
        unstarted = [Unstarted(row.id, row.run_at_ms, row.turn) for row in group]
        late[policies.misfire.kind] += sorted(decide_late(unstarted, policies, now_ms))
    return late


def waiting_queues(db: Db) -> list[str]:
    """Queues that have jobs waiting for their time: a step per queue, not per job."""
    rows = db.run(
        "WITH RECURSIVE found(queue) AS ("
        "SELECT (SELECT queue FROM {p}jobs WHERE waits = 1 ORDER BY queue LIMIT 1) "
        "UNION ALL SELECT (SELECT j.queue FROM {p}jobs j WHERE j.waits = 1 "
        "AND j.queue > found.queue ORDER BY j.queue LIMIT 1) "
        "FROM found WHERE found.queue IS NOT NULL) "
        "SELECT queue FROM found WHERE queue IS NOT NULL"
    )
    return list(rows.scalars())


def cancel_job(
    db: Db, job_id: JobId, *, by: str | None = None, reason: str | None = None
) -> Job | JobRefused:
    """Cancel what has not begun; ask the worker of a running job."""
    job = _locked(db, job_id)
    if job is None or job.state is JobState.CANCELLED:
        return job or JobRefused(job_id, None)
    if job.state is JobState.PROCESSING:
        db.run("UPDATE {p}jobs SET cancel_asked = 1 WHERE id = :id", id=job_id)
        db.dialect.tell(db, {f"cancel:{job_id}"})
        return _now(db, job_id)
    if not may_go(job.state, JobState.CANCELLED):
        return JobRefused(job_id, job.state)
    move(db, [job_id], [JobState.CANCELLED], actor=by, reason=reason)
    ledger.follow_jobs(db, [job_id], JobState.CANCELLED)
    turns.give_back(db, [(job.schedule_id, job_id)])
    return _now(db, job_id)


def retry_job(
    db: Db,
    job_id: JobId,
    *,
    reset_attempts: bool = True,
    by: str | None = None,
    reason: str | None = None,
) -> Job | JobRefused:
    """Queue a job again, due now."""
    job = _locked(db, job_id, JobState.QUEUED)
    if job is None or job.state is JobState.QUEUED:
        return job or JobRefused(job_id, None)
    if job.state in (JobState.PROCESSING, JobState.FAILED) or not may_go(
        job.state, JobState.QUEUED
    ):
        return JobRefused(job_id, job.state)
    sets = "place = place + {now} - run_at_ms, run_at_ms = {now}, cancel_asked = 0, "
    if reset_attempts:
        sets += "attempts = 0"
    else:
        sets += "max_attempts = CASE WHEN attempts < max_attempts THEN max_attempts "
        sets += "ELSE attempts + 1 END"
    said = reason or ("retry, attempts reset" if reset_attempts else "retry")
    move(db, [job_id], [JobState.QUEUED], sets, actor=by, reason=said)
    ledger.follow_jobs(db, [job_id], JobState.QUEUED)
    if job.turn is not None and job.schedule_id is not None:
        turns.take_if_free(db, job.schedule_id, job_id)
    db.dialect.tell(db, {f"queue:{job.queue}"})
    return _now(db, job_id)


def delete_job(
    db: Db, job_id: JobId, *, by: str | None = None, reason: str | None = None
) -> Job | JobRefused:
    """Mark a job deleted and empty it."""
    job = _locked(db, job_id, JobState.DELETED)
    if job is None or job.state is JobState.DELETED:
        return job or JobRefused(job_id, None)
    if not may_go(job.state, JobState.DELETED):
        return JobRefused(job_id, job.state)
    emptied = "input = 'null', result = NULL, error = NULL, progress = NULL, metadata = NULL"
    write_attempts(db, [job_id])
    move(db, [job_id], [JobState.DELETED], emptied, actor=by, reason=reason)
    ledger.follow_jobs(db, [job_id], JobState.DELETED)
    turns.give_back(db, [(job.schedule_id, job_id)])
    return _now(db, job_id)


def prune(db: Db, retention: Retention, limit: int = MAX_SWEEP) -> int:
    """Remove ended jobs kept long enough, and keys that ran out."""
    check_limit(limit)
    kept = {state: getattr(retention, f"{state}_ms") for state in sorted(FINAL)}
    ids = [row.id for row in job_marks.take(db, kept, "id", limit)]
    if ids:
        db.run("DELETE FROM {p}job_events WHERE job_id IN :ids", ids=ids)
        db.run("DELETE FROM {p}jobs WHERE id IN :ids", ids=ids)
    db.run(
        "DELETE FROM {p}idempotency WHERE (workspace, action, idempotency_key) IN ("
        "WITH old AS MATERIALIZED (SELECT workspace, action, idempotency_key FROM {p}idempotency "
        "WHERE expires_at_ms <= {now} ORDER BY expires_at_ms LIMIT :limit {skip}) "
        "SELECT * FROM old)",
        limit=limit,
    )
    return len(ids)


def _locked(db: Db, job_id: JobId, target: JobState | None = None) -> Job | None:
    """A job that nobody else moves; struck off its mark where it had ended and goes on."""
    seen = _ended(db, job_id, target)
    if seen is not None:
        job_marks.strike(db, [seen])
    row = db.run("SELECT * FROM {p}jobs WHERE id = :id {lock}", id=job_id).first()
    if row is None:
        return None
    if _goes_on(row.state, target) and seen != (row.state, row.finished_at_ms, job_id):
        # Its mark comes before its row: two who take them in turns would wait for each other.
        raise LostRace(f"job {job_id} ended while it was asked for")
    return job_of(row)


def _ended(db: Db, job_id: JobId, target: JobState | None) -> job_marks.Ended | None:
    """How a job is marked that has ended and may go on to a state."""
    if target is None:
        return None
    seen = db.run("SELECT state, finished_at_ms FROM {p}jobs WHERE id = :id", id=job_id).first()
    if seen is None or not _goes_on(seen.state, target):
        return None
    return job_marks.Ended(seen.state, seen.finished_at_ms, job_id)


def _goes_on(state: str, target: JobState | None) -> bool:
    return target is not None and state in FINAL and may_go(JobState(state), target)


def _now(db: Db, job_id: JobId) -> Job:
    return job_of(db.run("SELECT * FROM {p}jobs WHERE id = :id", id=job_id).one())
