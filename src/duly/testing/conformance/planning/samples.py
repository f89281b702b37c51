"""Planned schedules for the suites, and short ways to read what a plan wrote."""

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
"""Every minute, the first so late that the write which brings it does not plan it at once."""


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


async def put_hourly(store: Store, overlap: Overlap = "skip", **policies: Any) -> None:
    """The hourly schedule `a` with an overlap policy; `policies` are the others."""
    definition = a_definition(policies=Policies(overlap=overlap, **policies))
    await put(store, a_write(definition=definition))


async def next_hour(store: Store, clock: ManualClock) -> PlanReport:
    """An hour later, and what is planned then."""
    clock.advance(hours=1)
    return await plan(store)


async def line(store: Store, name: str = "a") -> list[tuple[str, bool]]:
    """State of each job of a schedule, and whether it stands in line, by nominal time."""
    return [(job.state.value, job.in_line) for job in await jobs_of(store, name)]
