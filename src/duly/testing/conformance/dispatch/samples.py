"""Sample schedules with hand-over http, and short forms of claim, answer and fire."""

from __future__ import annotations

from typing import Any

from duly.model.dispatches import (
    DispatchAnswer,
    DispatchClaim,
    DispatchEnd,
    Dispatching,
    Fire,
    FireAnswer,
)
from duly.model.jobs import JobId, NewJob
from duly.model.schedule_writes import ScheduleWrite
from duly.model.schedules import Policies, ScheduleId
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import (
    FLOW,
    HOUR_MS,
    HOURLY,
    SCOPE,
    START_MS,
    a_definition,
    a_write,
    put,
)
from duly.triggers import Trigger

AT_MS = START_MS + HOUR_MS
"""The first time of an hourly schedule."""
LEASE_MS = 60_000


def a_post(
    name: str = "a", trigger: Trigger = HOURLY, *, max_runs: int | None = None, **policies: Any
) -> ScheduleWrite:
    """Return a write of an hourly schedule with hand-over http."""
    definition = a_definition(
        trigger, hand_over="http", policies=Policies(**policies), max_runs=max_runs
    )
    return a_write(name, definition)


async def claim(store: Store, claim_id: str = "one", **fields: Any) -> list[Dispatching]:
    """Return the dispatches of one claim with these fields."""
    return await store.claim_dispatches(DispatchClaim(claim_id, **fields))


async def claimed(store: Store, claim_id: str = "one", **fields: Any) -> list[tuple[str, int]]:
    """Return name and number of tries of each claimed dispatch."""
    return [(each.name, each.tries) for each in await claim(store, claim_id, **fields)]


async def claim_one(
    store: Store, clock: ManualClock, name: str = "a", claim_id: str = "one", **policies: Any
) -> Dispatching:
    """Store an hourly schedule, advance one hour, and return its claimed dispatch."""
    await put(store, a_post(name, **policies))
    clock.advance(hours=1)
    (dispatching,) = await claim(store, claim_id)
    return dispatching


async def answer(
    store: Store,
    dispatching: Dispatching,
    end: DispatchEnd,
    *,
    claim_id: str = "one",
    reason: str | None = None,
    delay_ms: int = 0,
) -> int:
    """End a dispatch; return how many were ended."""
    key = (dispatching.schedule_id, dispatching.nominal_ms)
    return await store.end_dispatches(claim_id, [DispatchAnswer(*key, end, reason, delay_ms)])


def a_job(job_id: str = "j1", name: str = "a", nominal_ms: int = AT_MS, **fields: Any) -> NewJob:
    """Return the job an endpoint creates for a dispatch; by default without an overlap check."""
    given: dict[str, Any] = {
        "action": f"{FLOW}.send",
        "scope": SCOPE,
        "schedule_id": ScheduleId(f"id-{name}"),
        "nominal_ms": nominal_ms,
    }
    return NewJob(id=JobId(job_id), **given | fields)


async def fire(
    store: Store, job_id: str = "j1", name: str = "a", nominal_ms: int = AT_MS, **fields: Any
) -> FireAnswer:
    """Fire a dispatch and return the answer."""
    return await store.fire(Fire(a_job(job_id, name, nominal_ms, **fields), FLOW, SCOPE, name))


def turning(overlap: str) -> dict[str, Any]:
    """Return the fields of a job that has an overlap policy."""
    return {"turn": "asks", "policies": f'{{"overlap":"{overlap}"}}'}
