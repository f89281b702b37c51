"""Small sample jobs, and a short way to bring one into each state."""

from __future__ import annotations

from typing import Any

from duly.model.claims import ClaimRequest, Claims
from duly.model.jobs import Job, JobId, JobState, LeasedJob, NewJob, WorkerId
from duly.model.retries import RetryPolicy
from duly.model.stored_jobs import Enqueued
from duly.rules.outcomes import Cancelled, Failed, Outcome, Succeeded, decide
from duly.stores.port import Store
from duly.testing.conformance.samples import HOUR_MS, START_MS

ACTION = "reminders.send"
ADA = WorkerId("worker-ada")
BOB = WorkerId("worker-bob")
LEASE_MS = 30_000
PLAIN = RetryPolicy(attempts=3, backoff="fixed", first_delay_ms=1_000, jitter=False)
"""Three attempts, a second apart."""

RESTING = tuple(state for state in JobState if state is not JobState.FAILED)
"""States in which a job can be stored."""


def a_job(name: str = "a", **fields: Any) -> NewJob:
    """Return a job that is due at once; `fields` override the defaults."""
    values: dict[str, Any] = {"id": JobId(name), "action": ACTION, "retry": PLAIN}
    return NewJob(**values | fields)


async def insert(store: Store, *jobs: NewJob) -> None:
    """Insert jobs that must be new."""
    answers = await store.insert_jobs(jobs)
    assert answers == [Enqueued(job.id, created=True) for job in jobs]


async def claims(store: Store, worker: WorkerId = ADA, **fields: Any) -> Claims:
    """Return a claim of the default queue; `fields` override the request's."""
    return await store.claim_jobs(ClaimRequest(worker, **fields))


async def claimed(store: Store, worker: WorkerId = ADA, **fields: Any) -> list[str]:
    """Claim jobs and return their ids."""
    return [job.id for job in (await claims(store, worker, **fields)).jobs]


async def claim_one(store: Store, worker: WorkerId = ADA, **fields: Any) -> LeasedJob:
    """Claim and return the only job available."""
    (job,) = (await claims(store, worker, **fields)).jobs
    return job


async def end(store: Store, job: LeasedJob, outcome: Outcome) -> None:
    """Finish an attempt whose fence must be valid."""
    assert await store.finish([decide(job, outcome)]) == []


async def the_job(store: Store, name: str = "a") -> Job:
    """Return a job that must exist."""
    job = await store.get_job(JobId(name))
    assert job is not None
    return job


async def path(store: Store, name: str = "a") -> list[str]:
    """Return the states of a job's events; check that they are gapless and end in its state."""
    events = await store.job_events(JobId(name))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    job = await the_job(store, name)
    assert (job.events, job.state) == (events[-1].seq, events[-1].state)
    return [event.state.value for event in events]


async def reasons(store: Store, name: str = "a") -> list[str | None]:
    """Return the reasons of a job's events."""
    return [event.reason for event in await store.job_events(JobId(name))]


async def tries(store: Store, name: str = "a") -> list[tuple[int, str | None]]:
    """Return number and outcome of each attempt of a job."""
    return [(each.number, each.status) for each in await store.job_attempts(JobId(name))]


async def bring_to(store: Store, state: JobState, name: str = "a", **fields: Any) -> Job:
    """Return a new job in a given state; may claim other queued jobs on the way."""
    later = {"run_at_ms": START_MS + HOUR_MS} if state is JobState.SCHEDULED else {}
    await insert(store, a_job(name, **fields | later))
    if state not in (JobState.SCHEDULED, JobState.QUEUED):
        (job,) = (await claims(store, queues=(fields.get("queue", "default"),))).jobs
        outcomes: dict[JobState, Outcome] = {
            JobState.SUCCEEDED: Succeeded('"done"'),
            JobState.RETRYING: Failed("no luck"),
            JobState.CANCELLED: Cancelled(),
            JobState.DEAD: Failed("no hope", is_final=True),
            JobState.DELETED: Succeeded(),
        }
        if state in outcomes:
            await end(store, job, outcomes[state])
    if state is JobState.DELETED:
        await store.delete_job(JobId(name))
    found = await the_job(store, name)
    assert found.state is state
    return found
