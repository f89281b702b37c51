"""Jobs: storing them, what callers and workers ask of them, and the sweeps over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from duly.engine.jobs.moves import ask_to_stop, get, get_many, move, put
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
    """Store jobs with their first events; earlier ones of the call count for later ones."""
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
    """Take the idempotency key of a job; return the answer for a key that is held already."""
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
    """Return what the key of a job stands for already; one that ran out stands for nothing."""
    if new.key is None:
        return None
    held = tx.get(IDEMPOTENCY_KEY, new.workspace, new.action, new.key)
    return None if held is None or held.expires_at_ms <= tx.now_ms else held


def digest_of(text: str) -> str:
    """Return what an idempotency key remembers of an input."""
    return sha256(text.encode()).hexdigest()[:32]


def add(tx: Tx, new: NewJob) -> Job:
    """Store a job that does not exist, with its first event."""
    job = first_form(new, tx.now_ms)
    tx.add(JOB, StoredJob(job, place_of(job.priority, job.run_at_ms, new.aging_ms)))
    tx.append(JOB_EVENTS, JobEvent(job.id, 1, tx.now_ms, job.state, 0, None, None))
    # Those for later too: a worker that sleeps until the next one must know of an earlier one.
    tx.tell(f"queue:{job.queue}")
    return job


def first_form(new: NewJob, now_ms: int) -> Job:
    """Return a new job as it is stored first."""
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
    """Cancel a job that has not begun; ask the worker of a running one to stop it."""
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
    """Queue a dead, retrying or scheduled job, due now."""
    job = get(tx, job_id)
    if job is None or job.state is JobState.QUEUED:
        return job or JobRefused(job_id, None)
    if job.state not in _RETRIABLE:
        return JobRefused(job_id, job.state)
    changes: dict[str, Any] = {"max_attempts": max(job.max_attempts, job.attempts + 1)}
    if reset_attempts:
        # With one attempt the mark may mean at_most_once, which a retry does not change.
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
    # What an operator asks for runs, whoever has the marker.
    if job.turn is not None and job.schedule_id and tx.get(MARKER, job.schedule_id) is None:
        tx.put(MARKER, Marker(job.schedule_id, job.id, tx.now_ms))
    return moved


def delete_job(
    tx: Tx, job_id: JobId, *, by: str | None = None, reason: str | None = None
) -> Job | JobRefused:
    """Mark a queued or ended job as deleted, and empty it."""
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
    """Return the running job if that claim of it still stands."""
    job = get(tx, job_id)
    if job is None or job.state is not JobState.PROCESSING or job.fence != fence:
        return None
    return job


def finish(tx: Tx, finishes: Sequence[Finish]) -> list[JobId]:
    """Store how attempts ended; return the ids whose fence was void."""
    for each in finishes:
        check_finish(each)
    ledger.hold_of_jobs(tx, list(get_many(tx, [each.job_id for each in finishes]).values()))
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
        # A job that somebody asked to cancel ends where it would go on.
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
    """Keep texts beside running jobs; return the ids whose fence is void."""
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
    """Record that handlers are about to be called, and charge the attempts."""
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
    """Extend leases that still stand."""
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
    """Move jobs on whose lease has ended, the earliest first."""
    check_limit(limit, MAX_SWEEP)
    keys = tx.find(LEASES, upto=(tx.now_ms,), limit=limit)
    found = get_many(tx, [str(key[0]) for key in keys])
    lost = [job for job in found.values() if is_lost(job, tx.now_ms)]
    ledger.hold_of_jobs(tx, lost)
    for job in lost:
        loss = decide_loss(job)
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
    """Return whether the lease of a running job has ended."""
    return job.lease_until_ms is not None and job.lease_until_ms <= now_ms


def promote_all(tx: Tx, limit: int = MAX_SWEEP) -> int:
    """Queue jobs of all queues whose run time has come, the earliest first."""
    check_limit(limit, MAX_SWEEP)
    return promote_due(tx, tx.partitions(WAITING), limit)


def promote_due(tx: Tx, queues: Sequence[str], limit: int = MAX_SWEEP) -> int:
    """Queue jobs of these queues whose run time has come, the earliest first.

    Jobs of schedules that come too late, or while another has not ended, count but are not queued.
    """
    check_limit(limit, MAX_SWEEP)
    upto = (tx.now_ms,)
    keys = [key for queue in queues for key in tx.find(WAITING, queue, upto=upto, limit=limit)]
    return promote_jobs(tx, [str(key[0]) for key in keys], limit)


def promote_jobs(tx: Tx, job_ids: Sequence[str], limit: int = MAX_SWEEP) -> int:
    """Queue those of these jobs whose run time has come, as their schedules allow."""
    found = get_many(tx, job_ids)
    due = sorted(
        (job for job in found.values() if is_waiting(job) and job.run_at_ms <= tx.now_ms),
        key=lambda job: (job.run_at_ms, job.id),
    )[:limit]
    ledger.hold_of_jobs(tx, due)
    by_schedule: dict[str, list[Job]] = defaultdict(list)
    # Those that hold a marker already come first: one that gives way must be where it can be found.
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
    """Remove ended jobs kept long enough, the oldest of each state first, and expired keys."""
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
    """Return how long ended jobs are kept, by state."""
    return {
        JobState.SUCCEEDED: retention.succeeded_ms,
        JobState.CANCELLED: retention.cancelled_ms,
        JobState.DEAD: retention.dead_ms,
        JobState.DELETED: retention.deleted_ms,
    }
