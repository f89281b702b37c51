"""Checks before a job of a schedule starts: its authorisation and its occurrence."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import Executor
from functools import partial

from duly.flows.context import Authorize, Calls
from duly.model.jobs import JobId, LeasedJob
from duly.model.ledger import Occurrence
from duly.model.principals import principal_of
from duly.model.schedules import Schedule, ScheduleId
from duly.rules.outcomes import Denied
from duly.runtime.worker.threads import in_thread

Answer = asyncio.Future[Occurrence | None]


class Admission:
    """The checks of one worker, shared by all its slots."""

    def __init__(self, calls: Calls, threads: Executor) -> None:
        self._calls = calls
        self._threads = threads
        self._asked: dict[JobId, Answer] = {}
        self._reading: asyncio.Task[None] | None = None

    async def denied(self, job: LeasedJob) -> Denied | None:
        """Return why the job may not run; None: it may. Errors of the check are raised."""
        authorize = self._calls.authorize
        if authorize is None or job.schedule_id is None:
            return None
        found = await self._calls.reach.store.find_schedule(ScheduleId(job.schedule_id))
        if found is None:
            # Without the schedule, authorize cannot be asked.
            return Denied("its schedule was deleted")
        if await self._allows(authorize, found, job):
            return None
        return Denied(f"authorize refused schedule {found.name!r} of {found.scope}")

    async def _allows(self, authorize: Authorize, found: Schedule, job: LeasedJob) -> bool:
        ask = partial(authorize, principal_of(job.scope, job.workspace), found)
        if inspect.iscoroutinefunction(authorize):
            answer = ask()
        else:
            # It may block, and the loop serves other slots as well.
            answer = await in_thread(self._threads, ask)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    async def occurrence(self, job: LeasedJob) -> Occurrence | None:
        """Return the job's occurrence. Requests that come during a read share the next read."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._asked[job.id] = answer
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await answer

    async def _read(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                await self._answer(asked)
        finally:
            self._reading = None

    async def _answer(self, asked: dict[JobId, Answer]) -> None:
        waiting = {job_id: answer for job_id, answer in asked.items() if not answer.done()}
        try:
            found = await self._calls.reach.store.occurrences_of_jobs(list(waiting))
        except Exception as error:  # noqa: BLE001 - the waiting slots must not hang
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(error)
            return
        for job_id, answer in waiting.items():
            if not answer.done():  # else its slot was interrupted
                answer.set_result(found.get(job_id))
