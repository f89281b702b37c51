"""Queues and workers: settings, counts, and what waits at the head of each line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duly.model.jobs import JobState, WorkerId


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What is decided about a queue; a queue nobody spoke about has the defaults."""

    queue: str
    is_paused: bool = False
    note: str | None = None
    job_limit: int | None = None
    """Jobs of the queue that may be claimed at once, over all workers; None: any number."""
    workspace_limit: int = 1
    """Tokens of each (queue, workspace) pair."""


class JobCount(NamedTuple):
    """How many jobs of a queue are in a state."""

    queue: str
    state: JobState
    jobs: int


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as it last said of itself."""

    id: WorkerId
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    running: int = 0
    is_stopping: bool = False
    started_at_ms: int = 0
    beat_at_ms: int = 0
    """Both times are the store's, whatever was passed in."""
    actions: tuple[str, ...] | None = None
    """Actions it has code for; None: a worker of an earlier release, which did not say."""


class WaitingWork(NamedTuple):
    """Queued jobs of one action in one queue, of those that were looked at."""

    queue: str
    action: str
    jobs: int
    oldest_run_at_ms: int
    is_capped: bool
    """The queue's line is longer than what was looked at."""


class Line(NamedTuple):
    """The head of every queue's line."""

    now_ms: int
    works: Sequence[WaitingWork]
    """By queue and action."""
