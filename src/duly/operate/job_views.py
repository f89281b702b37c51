"""Operator views of jobs, queues, workers and locks.

Views hold redacted previews, scrubbed texts and aware datetimes, never a raw payload. Every field
is redacted, by default rules and by the names that the action declares secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from duly.model.events import Attempt, AttemptStatus, JobEvent
from duly.model.jobs import Delivery, Job, JobId, JobState, WorkerId
from duly.model.locks import Lock
from duly.model.queues import QueueSettings, WorkerInfo
from duly.model.retries import RetryPolicy
from duly.model.summaries import QueueCount, QueuePlace
from duly.operate.redaction.values import preview, scrub, secret_values
from duly.triggers.instants import from_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job without its input and result."""

    id: JobId
    action: str
    queue: str
    workspace: str
    scope: str
    state: JobState
    priority: int
    run_at: datetime
    created_at: datetime
    finished_at: datetime | None
    attempts: int
    max_attempts: int
    delivery: Delivery
    retry: RetryPolicy
    timeout_ms: int
    worker: WorkerId | None
    lease_ends_at: datetime | None
    cancel_asked: bool
    key: str | None
    schedule_id: str | None
    nominal_at: datetime | None
    correlation_id: str | None
    payload_preview: str
    """JSON text; redacted, and truncated if long."""
    result_preview: str | None
    metadata: str | None
    progress: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class EventView:
    """One transition of a job."""

    seq: int
    at: datetime
    state: JobState
    attempt: int
    actor: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One try of a job."""

    number: int
    worker: WorkerId
    started_at: datetime
    ended_at: datetime | None
    status: AttemptStatus | None
    error: str | None
    took_ms: int | None = None
    """Duration of the handler; None: it is running, never began or was lost, or ended under an
    older release."""


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job and its whole history, oldest first."""

    job: JobView
    events: list[EventView]
    attempts: list[AttemptView]


@dataclass(frozen=True, slots=True)
class QueueView:
    """Settings of a queue, with counts of its jobs."""

    queue: str
    is_paused: bool
    note: str | None
    job_limit: int | None
    workspace_limit: int
    counts: Mapping[QueuePlace, int]
    """Jobs that are queued, later (scheduled or retrying), processing or dead; zeros omitted."""
    capped: tuple[QueuePlace, ...] = ()
    """Places whose count stopped at a limit: there may be more."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as of its last heartbeat, and whether it is alive."""

    id: WorkerId
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    running: int
    is_stopping: bool
    started_at: datetime
    beat_at: datetime
    is_alive: bool


@dataclass(frozen=True, slots=True)
class LockView:
    """A held lock."""

    name: str
    owner: str
    fence: int
    until_at: datetime


def view_job(job: Job, extra: Collection[str] = ()) -> JobView:
    """Return a job without secrets; `extra` are the secret names that its action declares."""
    secrets = secret_values(job.input, extra)

    def shown(text: str | None) -> str | None:
        return None if text is None else preview(text, extra, secrets=secrets)

    return JobView(
        id=job.id,
        action=job.action,
        queue=job.queue,
        workspace=job.workspace,
        scope=job.scope,
        state=job.state,
        priority=job.priority,
        run_at=from_ms(job.run_at_ms),
        created_at=from_ms(job.created_at_ms),
        finished_at=_at(job.finished_at_ms),
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        delivery=job.delivery,
        retry=job.retry,
        timeout_ms=job.timeout_ms,
        worker=job.worker,
        lease_ends_at=_at(job.lease_until_ms),
        cancel_asked=job.cancel_asked,
        key=_scrubbed(job.key, secrets),
        schedule_id=job.schedule_id,
        nominal_at=_at(job.nominal_ms),
        correlation_id=_scrubbed(job.correlation_id, secrets),
        payload_preview=preview(job.input, extra),
        result_preview=shown(job.result),
        metadata=shown(job.metadata),
        progress=shown(job.progress),
        error=_scrubbed(job.error, secrets),
    )


def view_detail(
    job: Job, events: Sequence[JobEvent], attempts: Sequence[Attempt], extra: Collection[str] = ()
) -> JobDetail:
    """Return a job with its history, scrubbed of the secrets in the job's input."""
    secrets = secret_values(job.input, extra)
    return JobDetail(
        view_job(job, extra),
        [
            EventView(
                event.seq,
                from_ms(event.at_ms),
                event.state,
                event.attempt,
                _scrubbed(event.actor, secrets),
                _scrubbed(event.reason, secrets),
            )
            for event in events
        ],
        [
            AttemptView(
                attempt.number,
                attempt.worker,
                from_ms(attempt.started_at_ms),
                _at(attempt.ended_at_ms),
                attempt.status,
                _scrubbed(attempt.error, secrets),
                attempt.took_ms,
            )
            for attempt in attempts
        ],
    )


def view_queue(settings: QueueSettings, found: QueueCount) -> QueueView:
    """Return the view of a queue with its counts; omit counts of 0."""
    counts: dict[QueuePlace, int] = {
        "queued": found.queued,
        "later": found.later,
        "processing": found.processing,
        "dead": found.dead,
    }
    return QueueView(
        settings.queue,
        settings.is_paused,
        settings.note,
        settings.job_limit,
        settings.workspace_limit,
        {place: count for place, count in counts.items() if count},
        found.capped,
    )


def view_worker(worker: WorkerInfo, now_ms: int, alive_ms: int) -> WorkerView:
    """Return the view of a worker; it is alive if its heartbeat is at most `alive_ms` old."""
    return WorkerView(
        worker.id,
        worker.host,
        worker.pid,
        worker.queues,
        worker.slots,
        worker.running,
        worker.is_stopping,
        from_ms(worker.started_at_ms),
        from_ms(worker.beat_at_ms),
        now_ms - worker.beat_at_ms <= alive_ms,
    )


def view_lock(lock: Lock) -> LockView:
    """Return the view of a lock."""
    return LockView(lock.name, lock.owner, lock.fence, from_ms(lock.until_ms))


def _at(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)


def _scrubbed(text: str | None, secrets: Collection[str]) -> str | None:
    return None if text is None else scrub(text, secrets)
