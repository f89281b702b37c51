"""Answers about stored jobs, filters for them, and how long they are kept."""

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
    """False: the id or the idempotency key was there already; the id is that job's."""


class KeyTaken(NamedTuple):
    """Nothing was stored: the idempotency key stands for a job with another input."""

    job_id: JobId
    """The job that has the key."""


class JobRefused(NamedTuple):
    """The transition is not in the table, or the job does not exist; nothing changed."""

    job_id: JobId
    state: JobState | None
    """The state found; None: no such job."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None: any."""

    state: JobState | None = None
    queue: str | None = None
    workspace: str | None = None
    action: str | None = None
    schedule_id: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs are kept."""

    succeeded_ms: int = DAY_MS
    """Since a job succeeded."""
    cancelled_ms: int = 7 * DAY_MS
    """Since it was cancelled."""
    dead_ms: int = 30 * DAY_MS
    """Since it was given up: long, so that somebody may retry it."""
    deleted_ms: int = DAY_MS
    """Since an operator deleted it."""
