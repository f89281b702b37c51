"""Station 7: facts about a job, appended and never changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, cast

from duly.model.jobs import JobId, JobState, WorkerId

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


def attempts_of(events: Iterable[JobEvent]) -> list[Attempt]:
    """Return the tries that the events of one job tell of: each is a claim, and what ended it."""
    found: dict[int, Attempt] = {}
    for event in events:
        number = event.attempt
        if event.state is JobState.PROCESSING:
            worker = WorkerId(event.actor or "")
            found[number] = Attempt(event.job_id, number, worker, event.at_ms, None, None, None)
        elif number in found and found[number].status is None:
            status = event.ended_as or cast("AttemptStatus", event.state.value)
            found[number] = found[number]._replace(
                ended_at_ms=event.at_ms, status=status, error=event.reason, took_ms=event.took_ms
            )
    return list(found.values())
