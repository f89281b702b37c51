"""Jobs: inserts, requests of callers and workers, and the sweeps over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from duly.engine.jobs.moves import ask_to_stop, get, get_many, hold_markers, move, put
from duly.engine.kinds import (
    ENDED,
    EXPIRED_KEYS,
    IDEMPOTENCY_KEY,
    JOB,
    JOB_EVENTS,
    LEASES,
    MARKER,
    WAITING,
    Marker,
    StoredJob,
    StoredKey,
    is_waiting,
)
from duly.engine.schedules import ledger, overlap
from duly.engine.transaction import Tx
from duly.model.claims import NextLeaseEnd, ProgressNote, Renewed
from duly.model.events import JobEvent
from duly.model.jobs import (
    FINAL,
    Job,
    JobId,
    JobState,
    NewJob,
    StartMode,
    WorkerId,
    may_go,
    place_of,
)
from duly.model.stored_jobs import MAX_SWEEP, Enqueued, JobRefused, KeyTaken, Retention
from duly.rules.checks import check_inserts, check_limit
from duly.rules.outcomes import LEASE_EXPIRED, Finish, check_finish, decide_loss, mode_after

_CANCELLABLE = frozenset({JobState.SCHEDULED, JobState.QUEUED, JobState.RETRYING})
_RETRIABLE = frozenset({JobState.DEAD, JobState.RETRYING, JobState.SCHEDULED})


def insert_jobs(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
    """Store jobs with their first events; return one answer per job, in order.

    An id or idempotency key taken earlier in the same call counts as taken.
    """
    check_inserts(jobs)
    tx.get_many(IDEMPOTENCY_KEY, [(job.workspace, job.action, job.key) for job in jobs if job.key])
    tx.get_many(JOB, [(job.id,) for job in jobs])
    return [_insert_one(tx, job) for job in jobs]


def _insert_one(tx: Tx, new: NewJob) -> Enqueued | KeyTaken:
    if tx.get(JOB, new.id) is not None:
        return Enqueued(new.id, created=False)
    taken = take_key(tx, new)
    if taken is not None:
        return taken
    add(tx, new)
    return Enqueued(new.id, created=True)


def take_key(tx: Tx, new: NewJob) -> Enqueued | KeyTaken | None:
    """Store a job's idempotency key; return the answer if the key is already taken, else None."""
    if new.key is None:
        return None
    digest = digest_of(new.input)
    held = held_key(tx, new)
    if held is not None:
        is_same = held.digest == digest
        return Enqueued(held.job_id, created=False) if is_same else KeyTaken(held.job_id)
    expires_at_ms = tx.now_ms + new.key_ttl_ms
    key = StoredKey(new.workspace, new.action, new.key, new.id, digest, expires_at_ms)
    tx.put(IDEMPOTENCY_KEY, key)
    return None


def held_key(tx: Tx, new: NewJob) -> StoredKey | None:
    """Return the stored idempotency key of a job; None: no key, not stored, or expired."""
    if new.key is None:
        return None
    held = tx.get(IDEMPOTENCY_KEY, new.workspace, new.action, new.key)
    return None if held is None or held.expires_at_ms <= tx.now_ms else held


def digest_of(text: str) -> str:
    """Return the digest of an input that is stored with an idempotency key."""
    return sha256(text.encode()).hexdigest()[:32]


def add(tx: Tx, new: NewJob) -> Job:
    """Store a new job with its first event; return it."""
    job = first_form(new, tx.now_ms)
    tx.add(JOB, StoredJob(job, place_of(job.priority, job.run_at_ms, new.aging_ms)))
    tx.append(JOB_EVENTS, JobEvent(job.id, 1, tx.now_ms, job.state, 0, None, None))
    # Also for scheduled jobs: a worker asleep until the next run time must learn of an earlier one.
    tx.tell(f"queue:{job.queue}")
    return job


def first_form(new: NewJob, now_ms: int) -> Job:
    """Return a new job in its initial state."""
    run_at_ms = now_ms if new.run_at_ms is None else new.run_at_ms
    has_to_wait = run_at_ms > now_ms or new.in_line
    return Job(
        id=new.id,
        action=new.action,
        queue=new.queue,
        workspace=new.workspace,
        scope=new.scope,
        state=JobState.SCHEDULED if has_to_wait else JobState.QUEUED,
        priority=new.priority,
        run_at_ms=run_at_ms,
        created_at_ms=now_ms,
        finished_at_ms=None,
        attempts=0,
        max_attempts=new.max_attempts,
        start_mode=new.start_mode,
        fence=0,
        events=1,
        retry=new.retry,
        timeout_ms=new.timeout_ms,
        worker=None,
        lease_until_ms=None,
        unstarted=None,
        cancel_asked=False,
        key=new.key,
        schedule_id=new.schedule_id,
        nominal_ms=new.nominal_ms,
        policies=new.policies,
        turn=new.turn,
        in_line=new.in_line,
        correlation_id=new.correlation_id,
        metadata=new.metadata,
        input=new.input,
        result=None,
        error=None,
        progress=None,
    )


def cancel_job(
    tx: Tx, job_id: JobId, *, by: str | None = None, reason: str | None = None
) -> Job | JobRefused:
    """Cancel a job that has not begun; ask the worker of a running one to stop it.

    A cancelled job is returned unchanged; any other state is refused.
    """
    job = get(tx, job_id)
    if job is None or job.state is JobState.CANCELLED:
        return job or JobRefused(job_id, None)
    if job.state is JobState.PROCESSING:
        return ask_to_stop(tx, job)
    if job.state not in _CANCELLABLE:
        return JobRefused(job_id, job.state)
    return move(tx, job, [JobState.CANCELLED], actor=by, reason=reason)


def retry_job(
    tx: Tx,
    job_id: JobId,
    *,
    reset_attempts: bool = True,
    by: str | None = None,
    reason: str | None = None,
) -> Job | JobRefused:
    """Queue a dead, retrying or scheduled job, due now.

    A queued job is returned unchanged; any other state is refused.
    """
    job = get(tx, job_id)
    if job is None or job.state is JobState.QUEUED:
        return job or JobRefused(job_id, None)
    if job.state not in _RETRIABLE:
        return JobRefused(job_id, job.state)
    changes: dict[str, Any] = {"max_attempts": max(job.max_attempts, job.attempts + 1)}
    if reset_attempts:
        # Keep max_attempts: 1 may mean at_most_once, which a retry does not change.
        changes = {"attempts": 0}
    moved = move(
        tx,
        job,
        [JobState.QUEUED],
        actor=by,
        reason=reason or ("retry, attempts reset" if reset_attempts else "retry"),
        run_at_ms=tx.now_ms,
        cancel_asked=False,
        **changes,
    )
    # A requested retry runs even if another job has the marker.
    if job.turn is not None and job.schedule_id and tx.get(MARKER, job.schedule_id) is None:
        tx.put(MARKER, Marker(job.schedule_id, job.id, tx.now_ms))
    return moved


def delete_job(
    tx: Tx, job_id: JobId, *, by: str | None = None, reason: str | None = None
) -> Job | JobRefused:
    """Mark a queued or ended job as deleted and clear its content; refuse other states."""
    job = get(tx, job_id)
    if job is None or job.state is JobState.DELETED:
        return job or JobRefused(job_id, None)
    if not may_go(job.state, JobState.DELETED):
        return JobRefused(job_id, job.state)
    return move(
        tx,
        job,
        [JobState.DELETED],
        actor=by,
        reason=reason,
        input="null",
        result=None,
        error=None,
        progress=None,
        metadata=None,
    )


def held(tx: Tx, job_id: JobId, fence: int) -> Job | None:
    """Return a running job if its fence matches, else None."""
    job = get(tx, job_id)
    if job is None or job.state is not JobState.PROCESSING or job.fence != fence:
        return None
    return job


def finish(tx: Tx, finishes: Sequence[Finish]) -> list[JobId]:
    """Store how attempts ended; return the ids whose fence was void."""
    for each in finishes:
        check_finish(each)
    jobs = list(get_many(tx, [each.job_id for each in finishes]).values())
    ledger.hold_of_jobs(tx, jobs)
    hold_markers(tx, jobs)
    void: list[JobId] = []
    for each in finishes:
        job = held(tx, each.job_id, each.fence)
        if job is None:
            void.append(each.job_id)
        else:
            _finish_one(tx, job, each)
    return void


def _finish_one(tx: Tx, job: Job, finish: Finish) -> None:
    if job.cancel_asked and finish.state not in FINAL:
        # A job with a cancel request ends instead of running again.
        finish = finish._replace(
            state=JobState.CANCELLED, via=None, status="cancelled", delay_ms=None, error="cancelled"
        )
    is_back = finish.state is JobState.QUEUED
    now_ms = tx.now_ms
    move(
        tx,
        job,
        (finish.state,) if finish.via is None else (finish.via, finish.state),
        reason=finish.error,
        ended_as=None if finish.status == finish.state else finish.status,
        took_ms=finish.took_ms,
        attempts=job.attempts + finish.charge,
        run_at_ms=job.run_at_ms if finish.delay_ms is None else now_ms + finish.delay_ms,
        result=job.result if is_back else finish.result,
        error=job.error if is_back else finish.error,
        progress=job.progress if finish.progress is None else finish.progress,
        start_mode=mode_after(finish, job.start_mode),
    )


def note_progress(tx: Tx, notes: Sequence[ProgressNote]) -> list[JobId]:
    """Store progress notes of running jobs; return the ids whose fence is void."""
    get_many(tx, [note.job_id for note in notes])
    void: list[JobId] = []
    for job_id, fence, progress in notes:
        job = held(tx, job_id, fence)
        if job is None:
            void.append(job_id)
        else:
            put(tx, replace(job, progress=progress))
    return void


def start_jobs(tx: Tx, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
    """Record that handlers are about to be called, and charge the attempts.

    Return the jobs whose claim is void or that were asked to stop; they are not started.
    """
    get_many(tx, [job_id for job_id, _ in leases])
    found = Renewed([], [])
    for job_id, fence in leases:
        job = held(tx, job_id, fence)
        if job is None or job.worker != worker:
            found.lost.append(job_id)
        elif job.cancel_asked:
            found.cancel.append(job_id)
        elif job.unstarted == fence:
            put(tx, replace(job, unstarted=None, attempts=job.attempts + 1))
    return found


def renew_leases(
    tx: Tx, worker: WorkerId, leases: Sequence[tuple[JobId, int]], lease_ms: int
) -> Renewed:
    """Extend the leases that are still valid; return the lost ones and the jobs asked to stop."""
    get_many(tx, [job_id for job_id, _ in leases])
    renewed = Renewed([], [])
    for job_id, fence in leases:
        job = held(tx, job_id, fence)
        if job is None or job.worker != worker:
            renewed.lost.append(job_id)
            continue
        put(tx, replace(job, lease_until_ms=tx.now_ms + lease_ms))
        if job.cancel_asked:
            renewed.cancel.append(job_id)
    return renewed


def claim_one(tx: Tx, job: Job, worker: WorkerId, lease_ms: int) -> Job:
    """Lease a queued job to a worker."""
    is_recorded = job.start_mode is not StartMode.AHEAD
    return move(
        tx,
        job,
        [JobState.PROCESSING],
        actor=worker,
        fence=job.fence + 1,
        unstarted=job.fence + 1 if is_recorded else None,
        worker=worker,
        lease_until_ms=tx.now_ms + lease_ms,
    )


def release_expired(tx: Tx, limit: int = MAX_SWEEP) -> int:
    """Release jobs whose lease has expired, earliest first, as decided by `decide_loss`.

    Return how many were released.
    """
    check_limit(limit, MAX_SWEEP)
    keys = tx.find(LEASES, upto=(tx.now_ms,), limit=limit)
    found = get_many(tx, [str(key[0]) for key in keys])
    lost = [job for job in found.values() if is_lost(job, tx.now_ms)]
    ledger.hold_of_jobs(tx, lost)
    losses = [(job, decide_loss(job)) for job in lost]
    hold_markers(tx, [job for job, loss in losses if loss.path[-1] in FINAL])
    for job, loss in losses:
        move(
            tx,
            job,
            loss.path,
            reason=LEASE_EXPIRED,
            ended_as="lost",
            start_mode=loss.start_mode,
            attempts=job.attempts + loss.charge,
            error=LEASE_EXPIRED if loss.path[-1] is JobState.DEAD else job.error,
        )
    return len(lost)


def next_lease_end(tx: Tx) -> NextLeaseEnd:
    """Return when the first lease of a running job ends."""
    first = tx.peek_first(LEASES)
    return NextLeaseEnd(None if first is None else first.job.lease_until_ms, tx.now_ms)


def is_lost(job: Job, now_ms: int) -> bool:
    """Return whether the lease of a running job has expired."""
    return job.lease_until_ms is not None and job.lease_until_ms <= now_ms


def promote_all(tx: Tx, limit: int = MAX_SWEEP) -> int:
    """Queue due jobs of all queues, earliest first; return how many, as `promote_due`."""
    check_limit(limit, MAX_SWEEP)
    return promote_due(tx, tx.partitions(WAITING), limit)


def promote_due(tx: Tx, queues: Sequence[str], limit: int = MAX_SWEEP) -> int:
    """Queue due jobs of these queues, earliest first; return how many were due.

    The number includes jobs of schedules that a misfire or overlap policy keeps from being queued.
    """
    check_limit(limit, MAX_SWEEP)
    upto = (tx.now_ms,)
    keys = [key for queue in queues for key in tx.find(WAITING, queue, upto=upto, limit=limit)]
    return promote_jobs(tx, [str(key[0]) for key in keys], limit)


def promote_jobs(tx: Tx, job_ids: Sequence[str], limit: int = MAX_SWEEP) -> int:
    """Queue those of the jobs that are due, as their schedules' policies allow."""
    found = get_many(tx, job_ids)
    due = sorted(
        (job for job in found.values() if is_waiting(job) and job.run_at_ms <= tx.now_ms),
        key=lambda job: (job.run_at_ms, job.id),
    )[:limit]
    ledger.hold_of_jobs(tx, due)
    by_schedule: dict[str, list[Job]] = defaultdict(list)
    # Retrying jobs, which may hold a marker, move first: the overlap policy may stop a holder.
    for job in due:
        if job.state is JobState.SCHEDULED and job.policies and job.schedule_id is not None:
            by_schedule[job.schedule_id].append(job)
        else:
            move(tx, job, [JobState.QUEUED])
    tx.get_many(MARKER, [(each,) for each in sorted(by_schedule)])
    for _, own in sorted(by_schedule.items()):
        overlap.promote(tx, own)
    return len(due)


def prune(tx: Tx, retention: Retention, limit: int = MAX_SWEEP) -> int:
    """Remove ended jobs past their retention, oldest of each state first, and expired keys.

    Return how many jobs were removed.
    """
    check_limit(limit, MAX_SWEEP)
    ended: list[JobId] = []
    for state, ms in kept(retention).items():
        if len(ended) == limit:
            break
        upto_ms = tx.now_ms - ms
        keys = tx.find(ENDED, state.value, upto=(upto_ms,), limit=limit - len(ended))
        for job in get_many(tx, [str(key[0]) for key in keys]).values():
            ended_at_ms = job.finished_at_ms
            if job.state is state and ended_at_ms is not None and ended_at_ms <= upto_ms:
                ended.append(job.id)
    for job_id in ended:
        tx.delete(JOB, job_id)
    expired = tx.find(EXPIRED_KEYS, upto=(tx.now_ms,), limit=limit)
    for key, item in tx.get_many(IDEMPOTENCY_KEY, expired).items():
        if item.expires_at_ms <= tx.now_ms:
            tx.delete(IDEMPOTENCY_KEY, *key)
    return len(ended)


def kept(retention: Retention) -> Mapping[JobState, int]:
    """Return the retention of ended jobs in milliseconds, by state."""
    return {
        JobState.SUCCEEDED: retention.succeeded_ms,
        JobState.CANCELLED: retention.cancelled_ms,
        JobState.DEAD: retention.dead_ms,
        JobState.DELETED: retention.deleted_ms,
    }
