"""Health findings from cheap counts of index, queues, jobs and workers. Pure.

Every check yields a finding, good or bad, so that silence is never mistaken for health.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from duly.model.index import IndexHealth
from duly.model.jobs import JobState
from duly.model.ledger_counts import MissingSchedule
from duly.model.queues import QueueSettings
from duly.operate.unserved import Unserved
from duly.rules.queue_settings import QueueRules

Level = Literal["ok", "warning", "bad"]

DUE_MS = 60_000
"""Rows due for longer exceed the default grace: planners are behind."""
SNAPSHOT_MS = 1_800_000
"""A transaction open for longer is reported."""
UNSERVED_NAMED = 3
"""Limit of queues and actions named in a finding."""
_WAITING = (JobState.QUEUED, JobState.RETRYING, JobState.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    name: str
    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class HealthInputs:
    """Inputs of the checks."""

    now_ms: int
    index: IndexHealth
    workers_alive: int
    workers: int
    states: Mapping[JobState, int] = field(default_factory=dict)
    """Jobs by state, each counted up to `most`."""
    most: int = 10_000
    queues: Sequence[QueueSettings] = ()
    missing: Sequence[MissingSchedule] = ()
    """Schedules that keep missing or skipping their times."""
    unserved: Sequence[Unserved] = ()
    """Waiting jobs that no live worker would claim."""
    oldest_snapshot_ms: int = 0
    """Age of the oldest transaction that retains deleted rows."""


@dataclass(frozen=True, slots=True)
class Health:
    """All findings; the worst one decides the level."""

    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """Level of the worst finding."""
        levels = {each.level for each in self.findings}
        if "bad" in levels:
            return "bad"
        return "warning" if "warning" in levels else "ok"


def judge(inputs: HealthInputs) -> Health:
    """Return the findings for these facts."""
    return Health(
        (
            _index(inputs.index),
            _quarantine(inputs.index),
            _planning(inputs),
            _misses(inputs.missing),
            _workers(inputs),
            _unserved(inputs.unserved),
            _dead(inputs),
            _queues(inputs),
            *_snapshot(inputs.oldest_snapshot_ms),
        )
    )


def _snapshot(oldest_ms: int) -> list[Finding]:
    """Return a finding if a transaction has been open for long; PostgreSQL only."""
    if oldest_ms <= SNAPSHOT_MS:
        return []
    text = f"a transaction has been open for {oldest_ms // 60_000} min: tables and indexes grow"
    return [Finding("snapshot", "warning", f"{text} until it ends; see pg_stat_activity")]


def _index(index: IndexHealth) -> Finding:
    if index.active and not index.rows:
        text = f"{index.active} schedules are active and the index is empty: nothing will fire"
        return Finding("index", "bad", f"{text}; run duly doctor --repair")
    if index.missing:
        text = f"{index.missing} of {index.active} active schedules have no index row"
        return Finding("index", "bad", f"{text}; run duly doctor --repair")
    if not index.is_whole:
        text = f"{index.active} active schedules looked at so far, and each has its row"
        text += "; duly doctor looks at all"
        return Finding("index", "ok", text + _external(index))
    text = f"{index.active} active schedules, {index.rows} index rows"
    return Finding("index", "ok", text + _external(index))


def _external(index: IndexHealth) -> str:
    return f"; {index.external} more have external hand-over" if index.external else ""


def _quarantine(index: IndexHealth) -> Finding:
    if index.quarantined:
        more = "+" if index.is_quarantined_capped else ""
        text = f"{index.quarantined}{more} rows cannot be evaluated; see duly schedules quarantine"
        return Finding("quarantine", "bad", text)
    return Finding("quarantine", "ok", "every row can be evaluated")


def _planning(inputs: HealthInputs) -> Finding:
    """Check due rows by hand-over: planners claim jobs, ticks claim http."""
    index, texts, is_behind = inputs.index, list[str](), False
    for count, oldest_ms, what, remedy in (
        (index.due, index.oldest_due_ms, "rows", "no planner runs, or they are behind"),
        (
            index.posts_due,
            index.oldest_post_ms,
            "rows of hand-over http",
            "no tick runs, or it is behind",
        ),
    ):
        if oldest_ms is not None:
            behind_ms = max(0, inputs.now_ms - oldest_ms)
            more = "+" if index.is_due_capped else ""
            text = f"{count}{more} {what} are due, the oldest for {behind_ms / 1000:.0f} s"
            is_late = behind_ms > DUE_MS
            texts.append(f"{text}: {remedy}" if is_late else text)
            is_behind = is_behind or is_late
    return Finding("planning", "bad" if is_behind else "ok", "; ".join(texts) or "nothing is due")


def _workers(inputs: HealthInputs) -> Finding:
    waiting = _words(inputs, *_WAITING)
    text = f"{inputs.workers_alive} of {inputs.workers} workers are alive, {waiting} jobs wait"
    if inputs.workers_alive:
        return Finding("workers", "ok", text)
    is_waited_for = inputs.states.get(JobState.QUEUED)
    return Finding(
        "workers", "bad" if is_waited_for else "warning", f"{text}: no worker would run them"
    )


def _misses(found: Sequence[MissingSchedule]) -> Finding:
    if not found:
        return Finding("misses", "ok", "no schedule keeps missing or skipping its times")
    first = found[0]
    lost = first.missed + first.skipped
    text = (
        f"{len(found)} schedules keep missing or skipping their times, first "
        f"{first.flow}/{first.scope}/{first.name}: {lost} of its last {first.looked_at}; "
        "see duly occurrences list"
    )
    return Finding("misses", "warning", text)


def _unserved(found: Sequence[Unserved]) -> Finding:
    if not found:
        return Finding("unserved", "ok", "a live worker serves every waiting job")
    more = f" and {len(found) - UNSERVED_NAMED} more" if len(found) > UNSERVED_NAMED else ""
    named = ", ".join(each.words() for each in found[:UNSERVED_NAMED])
    text = f"no live worker serves {named}{more}; start a worker with that queue and action"
    return Finding("unserved", "bad", text)


def _dead(inputs: HealthInputs) -> Finding:
    if inputs.states.get(JobState.DEAD):
        text = f"{_words(inputs, JobState.DEAD)} jobs are dead; see duly jobs list"
        return Finding("dead jobs", "warning", text)
    return Finding("dead jobs", "ok", "none")


def _words(inputs: HealthInputs, *states: JobState) -> str:
    """Return the number of jobs in these states, with "+" if the count was capped."""
    counts = [inputs.states.get(state, 0) for state in states]
    return f"{sum(counts)}{'+' if max(counts) >= inputs.most else ''}"


def _queues(inputs: HealthInputs) -> Finding:
    if QueueRules(inputs.queues).all.is_paused:
        text = "all are paused; duly queues resume --all opens them"
        return Finding("queues", "warning", text)
    paused = [each.queue for each in inputs.queues if each.is_paused]
    if paused:
        return Finding("queues", "warning", f"paused: {', '.join(paused)}")
    return Finding("queues", "ok", "none is paused")
