"""Station 8: what is wrong, if anything, from counts that are cheap to take. Pure.

Takes facts of the index, the queues and the workers; gives a finding for each thing that is looked
at, good or bad, so that silence is never mistaken for health.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from duly.job_store import QueueSettings
from duly.jobs import JobState
from duly.store import IndexHealth

Level = Literal["ok", "warning", "bad"]

DUE_MS = 60_000
"""What is due longer is as late as the usual grace allows: planners are behind."""
_WAITING = (JobState.QUEUED, JobState.RETRYING, JobState.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Vitals:
    """What is looked at."""

    now_ms: int
    index: IndexHealth
    workers_alive: int
    workers: int
    states: Mapping[JobState, int] = field(default_factory=dict)
    """Jobs by state, each counted up to `most`."""
    most: int = 10_000
    queues: Sequence[QueueSettings] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """All findings; the worst of them decides."""

    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """Of the worst finding."""
        levels = {each.level for each in self.findings}
        if "bad" in levels:
            return "bad"
        return "warning" if "warning" in levels else "ok"


def judge(vitals: Vitals) -> Health:
    """What the facts mean."""
    return Health(
        (
            _index(vitals.index),
            _quarantine(vitals.index),
            _planning(vitals),
            _workers(vitals),
            _dead(vitals),
            _queues(vitals),
        )
    )


def _index(index: IndexHealth) -> Finding:
    if index.active and not index.rows:
        text = f"{index.active} schedules are active and the index is empty: nothing will fire"
        return Finding("index", "bad", f"{text}; run duly doctor --repair")
    if index.missing:
        text = f"{index.missing} of {index.active} active schedules have no index row"
        return Finding("index", "bad", f"{text}; run duly doctor --repair")
    if not index.is_whole:
        text = f"{index.active} active schedules looked at so far, and each has its row"
        return Finding("index", "ok", text)
    return Finding("index", "ok", f"{index.active} active schedules, {index.rows} index rows")


def _quarantine(index: IndexHealth) -> Finding:
    if index.quarantined:
        text = f"{index.quarantined} rows cannot be evaluated; see duly schedules quarantine"
        return Finding("quarantine", "bad", text)
    return Finding("quarantine", "ok", "every row can be evaluated")


def _planning(vitals: Vitals) -> Finding:
    index = vitals.index
    if index.oldest_due_ms is None:
        return Finding("planning", "ok", "nothing is due")
    behind_ms = max(0, vitals.now_ms - index.oldest_due_ms)
    text = f"{index.due} rows are due, the oldest for {behind_ms / 1000:.0f} s"
    if behind_ms > DUE_MS:
        return Finding("planning", "bad", f"{text}: no planner runs, or they are behind")
    return Finding("planning", "ok", text)


def _workers(vitals: Vitals) -> Finding:
    waiting = _words(vitals, *_WAITING)
    text = f"{vitals.workers_alive} of {vitals.workers} workers are alive, {waiting} jobs wait"
    if vitals.workers_alive:
        return Finding("workers", "ok", text)
    is_waited_for = vitals.states.get(JobState.QUEUED)
    return Finding(
        "workers", "bad" if is_waited_for else "warning", f"{text}: nobody would run them"
    )


def _dead(vitals: Vitals) -> Finding:
    if vitals.states.get(JobState.DEAD):
        text = f"{_words(vitals, JobState.DEAD)} jobs are dead; see duly jobs list"
        return Finding("dead jobs", "warning", text)
    return Finding("dead jobs", "ok", "none")


def _words(vitals: Vitals, *states: JobState) -> str:
    """How many jobs are in these states, or that they were too many to count."""
    counts = [vitals.states.get(state, 0) for state in states]
    return f"{sum(counts)}{'+' if max(counts) >= vitals.most else ''}"


def _queues(vitals: Vitals) -> Finding:
    paused = [each.queue for each in vitals.queues if each.is_paused]
    if paused:
        return Finding("queues", "warning", f"paused: {', '.join(paused)}")
    return Finding("queues", "ok", "none is paused")
