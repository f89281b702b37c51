"""Queues and workers: settings, counts, and waiting jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duly.model.jobs import JobState, WorkerId


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue; a queue without stored settings has the defaults."""

    queue: str
    is_paused: bool = False
    note: str | None = None
    job_limit: int | None = None
    """Jobs of the queue that may be claimed at the same time, over all workers; None: no limit."""
    workspace_limit: int = 1
    """Tokens per (queue, workspace) pair."""


class JobCount(NamedTuple):
    """The number of jobs of a queue in one state."""

    queue: str
    state: JobState
    jobs: int


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as of its last heartbeat."""

    id: WorkerId
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    running: int = 0
    is_stopping: bool = False
    started_at_ms: int = 0
    beat_at_ms: int = 0
    """Both times are set by the store; passed values are ignored."""
    actions: tuple[str, ...] | None = None
    """Actions it has code for; None: a worker of an earlier release, which does not report them."""


class WaitingWork(NamedTuple):
    """Queued jobs of one action among the first jobs of one queue."""

    queue: str
    action: str
    jobs: int
    oldest_run_at_ms: int
    is_capped: bool
    """The queue has more jobs than were read."""


class Line(NamedTuple):
    """The first jobs of every queue."""

    now_ms: int
    works: Sequence[WaitingWork]
    """By queue and action."""
