"""Sample planned schedules, and short ways to read what a plan wrote."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from duly.model.jobs import Job, JobId
from duly.model.ledger import Occurrence
from duly.model.plans import PlanReport, PlanRequest
from duly.model.schedules import Overlap, Policies, ScheduleId
from duly.model.stored_jobs import JobFilter
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import a_definition, a_write, put
from duly.testing.conformance.suite import START
from duly.triggers import cron

PAGE = 1_000
FROM_TWO = cron("* * * * *", start_at=START + timedelta(minutes=2))
"""Every minute from the second on, too late for the write to plan it at once."""


async def plan(store: Store, **fields: Any) -> PlanReport:
    """Run one planning step with these request fields; return its report."""
    return await store.plan_occurrences(PlanRequest(**fields))


async def ledger(store: Store, name: str = "a") -> list[Occurrence]:
    """Return the ledger of a schedule, oldest first."""
    return (await store.list_occurrences(ScheduleId(f"id-{name}"), limit=PAGE))[::-1]


async def states(store: Store, name: str = "a") -> list[str]:
    """Return the states of a schedule's occurrences, oldest first."""
    return [each.state.value for each in await ledger(store, name)]


async def only_occurrence(store: Store, name: str = "a") -> Occurrence:
    """Return the only occurrence of a schedule."""
    (occurrence,) = await ledger(store, name)
    return occurrence


async def jobs_of(store: Store, name: str = "a") -> list[Job]:
    """Return the jobs of a schedule, ordered by nominal time."""
    jobs = await store.list_jobs(JobFilter(schedule_id=f"id-{name}"), limit=PAGE)
    return sorted(jobs, key=lambda job: job.nominal_ms or 0)


async def plan_one(store: Store, clock: ManualClock, name: str = "a", **fields: Any) -> JobId:
    """Store an hourly schedule, plan it an hour later, and return the id of its job."""
    await put(store, a_write(name, a_definition(**fields)))
    clock.advance(hours=1)
    await plan(store)
    (job,) = await jobs_of(store, name)
    return job.id


async def put_hourly(store: Store, overlap: Overlap = "skip", **policies: Any) -> None:
    """Store the hourly schedule `a` with an overlap policy and other policies."""
    definition = a_definition(policies=Policies(overlap=overlap, **policies))
    await put(store, a_write(definition=definition))


async def next_hour(store: Store, clock: ManualClock) -> PlanReport:
    """Advance one hour and plan; return the report."""
    clock.advance(hours=1)
    return await plan(store)


async def line(store: Store, name: str = "a") -> list[tuple[str, bool]]:
    """Return state and `in_line` of each job of a schedule, ordered by nominal time."""
    return [(job.state.value, job.in_line) for job in await jobs_of(store, name)]
