"""`duly demo`: jobs on a SQLite file, run by a worker in this process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duly.app import Duly
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import FINAL, Job, JobId, JobState
from duly.model.retries import RetryPolicy
from duly.operate.job_views import JobDetail
from duly.runtime import WorkerOptions

# SQLite has no notifications, so a worker sees a cancel request when it renews: after a second.
OPTIONS = WorkerOptions(slots=4, lease_s=3.0)
QUICKLY = RetryPolicy(attempts=5, first_delay_ms=50, jitter=False)
POLL_S = 0.02
LONGEST_S = 60.0


@dataclass
class Letter:
    """Input of the first action."""

    to: str
    api_key: str


def show_jobs(console: Console) -> None:
    """Enqueue, run, cancel and show jobs in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_tell(console, f"sqlite:///{folder}/demo.db"))


def _office(is_read: asyncio.Event) -> Flow:
    """Return a flow with actions that fail, wait and report progress."""
    office = Flow("office")

    @office.action(retry=QUICKLY)
    async def send(letter: Letter, ctx: Context) -> dict[str, int]:
        if ctx.attempt <= 2:
            raise ConnectionError(f"busy (key {letter.api_key})")
        return {"message": 17}

    @office.action
    async def count_rows(ctx: Context) -> int:
        ctx.progress(40, "400 of 1,000 rows")
        await is_read.wait()
        return 1_000

    @office.action
    async def print_all() -> None:
        await asyncio.Event().wait()

    return office


async def _tell(console: Console, url: str) -> None:
    is_read = asyncio.Event()
    app = Duly(url, flows=[_office(is_read)])
    async with app.running(worker=OPTIONS):
        letter = {"to": "ada@example.org", "api_key": "demo-key-4711"}
        sent = (await app.client.enqueue("office.send", letter)).job_id
        counted = (await app.client.enqueue("office.count_rows")).job_id
        printed = (await app.client.enqueue("office.print_all")).job_id
        console.print("three jobs, and a worker in this process; one reports its progress:")
        job = await _until(app, counted, lambda job: job.progress is not None)
        console.print(f"  {job.action} {job.state}: {escape(job.progress or '')}")
        is_read.set()
        await _until(app, printed, lambda job: job.state is JobState.PROCESSING)
        await app.client.cancel(printed)
        console.print("one never ends, so it was asked to stop; and then:")
        jobs = [await _until(app, each, _has_ended) for each in (sent, counted, printed)]
        console.print(_jobs_table(jobs))
        detail = await app.admin.job(sent)
    console.print(f"everything that happened to {detail.job.action}:")
    console.print(_history_table(detail))
    console.print("and what an operator sees of its input, without the key:")
    console.print(f"  {escape(detail.job.payload_preview)}")


async def _until(app: Duly, job_id: JobId, holds: Callable[[Job], bool]) -> Job:
    async with asyncio.timeout(LONGEST_S):
        while True:
            job = await app.client.job(job_id)
            if job is not None and holds(job):
                return job
            await asyncio.sleep(POLL_S)


def _has_ended(job: Job) -> bool:
    return job.state in FINAL


def _jobs_table(jobs: list[Job]) -> Table:
    table = Table("action", "state", "attempts", "result", box=None, padding=(0, 2))
    for job in jobs:
        table.add_row(job.action, job.state, str(job.attempts), escape(job.result or ""))
    return table


def _history_table(detail: JobDetail) -> Table:
    table = Table("", "state", "attempt", "reason", box=None, padding=(0, 2))
    for event in detail.events:
        table.add_row(str(event.seq), event.state, str(event.attempt), escape(event.reason or ""))
    return table
