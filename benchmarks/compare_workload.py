"""Runs operations of one checkout on request and returns what each of them cost.

Started by `compare` for each side: `SOURCE URL STATS_URL` on the command line, one JSON request per
line on standard input, one JSON answer per line on standard output. Imports only names that both
checkouts have.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duly
from benchmarks.compare_costs import Server, recorded
from duly import cron
from duly.stores import open_store
from duly.triggers import every

if TYPE_CHECKING:
    from duly.engine.ids import new_id
    from duly.model.claims import ClaimRequest
    from duly.model.jobs import JobId, JobState, NewJob, WorkerId
    from duly.model.plans import PlanRequest, PlanSettings
    from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
    from duly.model.schedules import Definition, ScheduleId
    from duly.model.stored_jobs import Enqueued, JobFilter
    from duly.rules.outcomes import Succeeded, decide
    from duly.stores.port import Store
else:
    from benchmarks.compare_names import (
        ClaimRequest,
        Definition,
        Enqueued,
        JobFilter,
        JobId,
        JobState,
        NewJob,
        PlanRequest,
        PlanSettings,
        ScheduleId,
        ScheduleKey,
        ScheduleWrite,
        ScheduleWritten,
        Succeeded,
        WorkerId,
        decide,
        new_id,
    )

BATCH = 500
"""Jobs or schedules per call."""
LOOK_AHEAD_MS = 90 * 60_000
"""A write plans times this close: one of NEAR_TRIGGER, none of FAR_TRIGGER."""
NEAR_TRIGGER = every(minutes=60)
FAR_TRIGGER = every(days=365)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
DAYS = ("*", "MON-FRI", "MON", "1,3,5")
PLANNED_TRIGGERS = [cron(f"0 9 * * {days}", tz=zone) for zone in ZONES for days in DAYS]
EDITED_SCHEDULES = 100

Run = Callable[[], Awaitable[None]]


class WrongCheckout(Exception):
    """`duly` was imported from another folder."""


class WrongResult(Exception):
    """An operation did not do the work that is measured."""


class Workload:
    """The operations. Each method prepares `count` of them and returns a function to run them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._numbers = itertools.count()

    async def fill(self, schedules: int) -> None:
        """Create the schedules that `plan` plans; the caller makes them due."""
        numbers = range(schedules)
        for start in range(0, schedules, BATCH):
            await self._write(
                [
                    write("plan", n, Definition(PLANNED_TRIGGERS[n % 16], "send", _input(n)))
                    for n in numbers[start : start + BATCH]
                ]
            )

    async def plan(self, count: int) -> Run:
        """Plan due schedules, `BATCH` at a time, until none is due."""

        async def run() -> None:
            planned = 0
            while (report := await self._store.plan_occurrences(PlanRequest(limit=BATCH))).rows:
                planned += report.planned
            if planned != count:
                raise WrongResult(f"{count} schedules were due; {planned} jobs were planned")

        return run

    async def job(self, count: int) -> Run:
        """Insert, claim and finish jobs, `BATCH` at a time."""

        async def run() -> None:
            for start in range(0, count, BATCH):
                await self._one_batch(min(BATCH, count - start))

        return run

    async def _one_batch(self, size: int) -> None:
        await self._store.insert_jobs([self._new_job() for _ in range(size)])
        claims = await self._store.claim_jobs(ClaimRequest(worker=WorkerId("w"), limit=size))
        lost = await self._store.finish([decide(j, Succeeded(), took_ms=1) for j in claims.jobs])
        if lost or len(claims.jobs) != size:
            raise WrongResult(f"{size} inserted, {len(claims.jobs)} claimed, {len(lost)} lost")

    async def enqueue(self, count: int) -> Run:
        """Insert jobs one at a time."""

        async def run() -> None:
            for _ in range(count):
                await self._insert(self._new_job())

        return run

    async def keyed_enqueue(self, count: int) -> Run:
        """Insert jobs one at a time, each with a new idempotency key."""

        async def run() -> None:
            for _ in range(count):
                await self._insert(self._new_job(f"order-{next(self._numbers)}"))

        return run

    async def create(self, count: int) -> Run:
        """Create schedules one at a time, each of another owner."""

        async def run() -> None:
            for _ in range(count):
                n = next(self._numbers)
                await self._write([write("create", n, Definition(FAR_TRIGGER, "send", _input(n)))])

        return run

    async def edit_input(self, count: int) -> Run:
        """Change the input of existing schedules, one at a time."""

        def changed(number: int) -> ScheduleWrite:
            new = Definition(FAR_TRIGGER, "send", _input(next(self._numbers)))
            return write("input", number % EDITED_SCHEDULES, new)

        await self._write([changed(number) for number in range(EDITED_SCHEDULES)])

        async def run() -> None:
            for number in range(count):
                await self._write([changed(number)])

        return run

    async def edit_trigger(self, count: int) -> Run:
        """Change the trigger of schedules that have one planned job each, one at a time."""

        def timed(trigger: duly.Trigger, number: int) -> ScheduleWrite:
            return write("trigger", number, Definition(trigger, "send", _input(number)))

        await self._write([timed(NEAR_TRIGGER, number) for number in range(count)])
        await self._check_planned_jobs(count)

        async def run() -> None:
            for number in range(count):
                await self._write([timed(FAR_TRIGGER, number)])

        return run

    async def check_withdrawn(self) -> None:
        """Raise WrongResult if edits of triggers have left planned jobs."""
        await self._check_planned_jobs(0)

    async def _check_planned_jobs(self, expected: int) -> None:
        which = JobFilter(state=JobState.SCHEDULED)
        found = len(await self._store.list_jobs(which, limit=1_000))
        if found != expected:
            raise WrongResult(f"{found} jobs are planned; {expected} were expected")

    def _new_job(self, key: str | None = None) -> NewJob:
        data = '{"account": 17, "template": "weekly-digest"}'
        return NewJob(id=JobId(new_id("job_")), action="bench.send", input=data, key=key)

    async def _insert(self, job: NewJob) -> None:
        (answer,) = await self._store.insert_jobs([job])
        if not isinstance(answer, Enqueued) or not answer.created:
            raise WrongResult(f"a job was not inserted: {answer}")

    async def _write(self, writes: Sequence[ScheduleWrite]) -> None:
        for answer in await self._store.put_schedules(writes):
            if not isinstance(answer, ScheduleWritten):
                raise WrongResult(f"a schedule was not written: {answer}")


OPERATIONS: dict[str, Callable[[Workload, int], Awaitable[Run]]] = {
    "plan": Workload.plan,
    "job": Workload.job,
    "enqueue": Workload.enqueue,
    "keyed-enqueue": Workload.keyed_enqueue,
    "create": Workload.create,
    "edit-input": Workload.edit_input,
    "edit-trigger": Workload.edit_trigger,
}
"""In the order in which they run; `plan` needs a database without other schedules."""


def write(flow: str, number: int, definition: Definition) -> ScheduleWrite:
    """Return a write of an owner's schedule in a flow."""
    key = ScheduleKey(flow, f"user:{number}", "digest")
    return ScheduleWrite(key, ScheduleId(new_id("sch_")), definition)


def _input(number: int) -> dict[str, object]:
    return {"account": number, "template": "weekly-digest", "locale": "de", "limit": 20}


async def timed(run: Run, server: Server | None) -> dict[str, object]:
    """Return the CPU times of this process and of its backend, and the wall time, in ns."""
    gc.collect()
    server_ns = server.cpu_ns() if server else 0
    client_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
    await run()
    return {
        "wall_ns": time.perf_counter_ns() - wall_ns,
        "client_ns": time.process_time_ns() - client_ns,
        "server_ns": (server.cpu_ns() if server else 0) - server_ns,
    }


async def counted(run: Run, server: Server | None) -> dict[str, object]:
    """Return the statements by text and the rows that the server read and wrote."""
    rows = server.rows() if server else 0
    with recorded(has_server=server is not None) as statements:
        await run()
    return {"statements": dict(statements), "rows": server.rows() - rows if server else None}


async def serve(url: str, stats_url: str) -> None:
    """Answer requests until standard input ends."""
    server = Server(stats_url) if url.startswith("postgresql") else None
    store = open_store(url, planning=PlanSettings(look_ahead_ms=LOOK_AHEAD_MS), connections=1)
    workload = Workload(store)
    answer: dict[str, object] = {}
    while True:
        print(json.dumps(answer), flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            break
        request = json.loads(line)
        operation, count = request["operation"], request["count"]
        if operation == "fill":
            await workload.fill(count)
            answer = {}
            continue
        run = await OPERATIONS[operation](workload, count)
        answer = await (counted if request["is_counted"] else timed)(run, server)
        if operation == "edit-trigger":
            await workload.check_withdrawn()
    await store.close()
    if server:
        server.close()


def main(source: str, url: str, stats_url: str) -> None:
    """Check that the requested checkout was imported, then serve."""
    found = Path(duly.__file__).resolve()
    if not found.is_relative_to(Path(source).resolve()):
        raise WrongCheckout(f"duly was imported from {found}, not from {source}")
    # Each store warns about an old SQLite again for every file.
    logging.getLogger("duly.stores").setLevel(logging.ERROR)
    asyncio.run(serve(url, stats_url))


if __name__ == "__main__":
    main(*sys.argv[1:])
