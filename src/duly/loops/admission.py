"""What is asked before a job of a schedule starts: whether it may, and which occurrence it is."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial

from duly.context import Authorize, Calls
from duly.jobs import LeasedJob
from duly.ledger import Occurrence
from duly.loops.job_context import Bench
from duly.outcomes import Denied
from duly.principals import principal_of
from duly.schedules import Schedule, ScheduleId
from duly.store import Store


async def denied(bench: Bench, calls: Calls, job: LeasedJob) -> Denied | None:
    """Why the job may not run; None: it may. What goes wrong while asking is raised."""
    if calls.authorize is None or job.schedule_id is None:
        return None
    found = await calls.reach.store.find_schedule(ScheduleId(job.schedule_id))
    if found is None:
        # Nobody can say any more whether it may.
        return Denied("its schedule was deleted")
    if await _allows(bench, calls.authorize, found, job):
        return None
    return Denied(f"authorize said no to schedule {found.name!r} of {found.scope}")


async def _allows(bench: Bench, authorize: Authorize, found: Schedule, job: LeasedJob) -> bool:
    ask = partial(authorize, principal_of(job.scope, job.workspace), found)
    if inspect.iscoroutinefunction(authorize):
        answer = ask()
    else:
        # It may look something up, and the loop serves other slots as well.
        answer = await asyncio.get_running_loop().run_in_executor(bench.threads, ask)
    return bool(await answer if inspect.isawaitable(answer) else answer)


async def occurrence_of(store: Store, job: LeasedJob) -> Occurrence | None:
    """The occurrence that a job was made for."""
    if job.schedule_id is None or job.nominal_ms is None:
        return None
    schedule_id = ScheduleId(job.schedule_id)
    rows = await store.list_occurrences(schedule_id, before_ms=job.nominal_ms + 1, limit=1)
    return next((row for row in rows if row.job_id == job.id), None)
