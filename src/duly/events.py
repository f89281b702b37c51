"""Station 7: facts about a job, appended and never changed."""

from __future__ import annotations

from typing import Literal, NamedTuple

from duly.jobs import JobId, JobState, WorkerId

AttemptStatus = Literal[
    "succeeded", "failed", "timed_out", "cancelled", "denied", "released", "lost"
]


class JobEvent(NamedTuple):
    """One transition of one job."""

    job_id: JobId
    seq: int
    """1, 2, 3, ... per job."""
    at_ms: int
    state: JobState
    """The state it went to."""
    attempt: int
    """The claim it belongs to; 0 before the first."""
    actor: str | None
    """Who asked; with `processing`, the worker. None: the worker of the attempt, or a sweep."""
    reason: str | None
    ended_as: AttemptStatus | None = None
    """How the attempt ended, where the state does not say it."""
    took_ms: int | None = None
    """How long the handler ran, on the event that ended its attempt; None: not known."""


class Attempt(NamedTuple):
    """One try of one job: a claim, and what became of it."""

    job_id: JobId
    number: int
    worker: WorkerId
    started_at_ms: int
    ended_at_ms: int | None
    status: AttemptStatus | None
    """None while it runs."""
    error: str | None
    took_ms: int | None = None
    """How long the handler ran, from its start to its return; None: it runs, never began or was
    lost. Less than the time from claim to end, which also holds waiting and storing."""
