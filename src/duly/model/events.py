"""Job events: one row per transition, never changed."""

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
    """The new state."""
    attempt: int
    """Number of the claim; 0 before the first."""
    actor: str | None
    """Who requested it; with `processing`, the worker. None: the attempt's worker, or a sweep."""
    reason: str | None
    ended_as: AttemptStatus | None = None
    """How the attempt ended, if the state does not determine it."""
    took_ms: int | None = None
    """Run time of the handler, on the event that ended its attempt; None: unknown."""


class Attempt(NamedTuple):
    """One attempt of one job: a claim and its result."""

    job_id: JobId
    number: int
    worker: WorkerId
    started_at_ms: int
    ended_at_ms: int | None
    status: AttemptStatus | None
    """None while it runs."""
    error: str | None
    took_ms: int | None = None
    """Run time of the handler, from its start to its return; None: it is running, never started or
    was lost. Shorter than the time from claim to end, which includes waiting and storing."""


def attempts_of(events: Iterable[JobEvent]) -> list[Attempt]:
    """Return the attempts of one job from its events."""
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
