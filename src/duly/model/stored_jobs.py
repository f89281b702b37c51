"""Results of job writes, job filters, and retention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from duly.model.jobs import JobId, JobState

MAX_INSERT = 10_000
MAX_SWEEP = 1_000
DAY_MS = 86_400_000


class Enqueued(NamedTuple):
    """The job is stored."""

    job_id: JobId
    created: bool
    """False: the id or idempotency key existed already; `job_id` is that job's."""


class KeyTaken(NamedTuple):
    """Nothing was stored: a job with another input has the idempotency key."""

    job_id: JobId
    """The job that has the key."""


class JobRefused(NamedTuple):
    """The transition is not allowed, or the job does not exist; nothing changed."""

    job_id: JobId
    state: JobState | None
    """The state found; None: no such job."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter for jobs; None: any value."""

    state: JobState | None = None
    queue: str | None = None
    workspace: str | None = None
    action: str | None = None
    schedule_id: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of ended jobs."""

    succeeded_ms: int = DAY_MS
    """Since a job succeeded."""
    cancelled_ms: int = 7 * DAY_MS
    """Since it was cancelled."""
    dead_ms: int = 30 * DAY_MS
    """Since it became dead: long, so that an operator can retry it."""
    deleted_ms: int = DAY_MS
    """Since an operator deleted it."""
