"""Planned schedules for the suites, and short ways to read what a plan wrote."""

from __future__ import annotations

from typing import Any

from duly.job_store import JobFilter
from duly.jobs import Job, JobId
from duly.ledger import Occurrence
from duly.plan_store import PlanReport, PlanRequest
from duly.schedules import ScheduleId
from duly.store import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import a_definition, a_write, put

PAGE = 1_000


async def plan(store: Store, **fields: Any) -> PlanReport:
    """One step of planning; `fields` are the request's."""
    return await store.plan_occurrences(PlanRequest(**fields))


async def ledger(store: Store, name: str = "a") -> list[Occurrence]:
    """The ledger of a schedule, oldest first."""
    return (await store.list_occurrences(ScheduleId(f"id-{name}"), limit=PAGE))[::-1]


async def states(store: Store, name: str = "a") -> list[str]:
    """The states of a schedule's occurrences, oldest first."""
    return [each.state.value for each in await ledger(store, name)]


async def only_occurrence(store: Store, name: str = "a") -> Occurrence:
    """The one occurrence that the ledger has of a schedule."""
    (occurrence,) = await ledger(store, name)
    return occurrence


async def jobs_of(store: Store, name: str = "a") -> list[Job]:
    """The jobs of a schedule by nominal time."""
    jobs = await store.list_jobs(JobFilter(schedule_id=f"id-{name}"), limit=PAGE)
    return sorted(jobs, key=lambda job: job.nominal_ms or 0)


async def plan_one(store: Store, clock: ManualClock, name: str = "a", **fields: Any) -> JobId:
    """An hourly schedule, an hour later, planned; gives the id of its job."""
    await put(store, a_write(name, a_definition(**fields)))
    clock.advance(hours=1)
    await plan(store)
    (job,) = await jobs_of(store, name)
    return job.id
