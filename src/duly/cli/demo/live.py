"""`duly demo`: the whole product on a temporary SQLite file, with a live table of jobs.

On a terminal it runs until Ctrl-C; otherwise, or with --once, until enough jobs have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
from collections import Counter
from dataclasses import dataclass

import aiohttp
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from duly.app import Duly
from duly.cli.demo.application import fill, make_app
from duly.errors import DulyError
from duly.model.jobs import JobState
from duly.operate.job_views import JobView
from duly.runtime import KeeperOptions, PlannerOptions, WorkerOptions
from duly.web.serving.serving import Address, Serving

WORKER = WorkerOptions(
    queues=("mail", "reports", "default"), slots=12, quick_poll_s=0.1, drain_s=2.0
)
LOOK_S = 0.5
ENOUGH_S = 60.0
LATEST, MANY = 12, 100
_COLOURS = {
    "succeeded": "green",
    "processing": "blue",
    "retrying": "yellow",
    "dead": "red",
    "cancelled": "dim",
}


@dataclass(frozen=True, slots=True)
class JobsSnapshot:
    """Snapshot of the jobs."""

    counts: Counter[str]
    latest: list[JobView]

    @property
    def is_enough(self) -> bool:
        """True if enough jobs succeeded and at least one is dead."""
        return self.counts["succeeded"] >= 5 and self.counts["dead"] >= 1


def run_product(console: Console, port: int, *, is_bounded: bool) -> None:
    """Start everything, show it, and stop cleanly."""
    with tempfile.TemporaryDirectory(prefix="duly-demo-") as folder:
        asyncio.run(_run(console, f"sqlite:///{folder}/demo.db", port, is_bounded))
    if not is_bounded:
        console.print("Stopped cleanly; the demo's database is gone.")


async def _run(console: Console, url: str, port: int, is_bounded: bool) -> None:
    app = make_app(url)
    server = Serving(app, Address(port=port))
    stopping = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # not on every platform
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with app.running(WORKER, KeeperOptions(period_s=2), PlannerOptions(period_s=1), server):
        await fill(app)
        _print_address(console, server, is_bounded)
        if is_bounded:
            snapshot = await _until_enough(app, stopping)
            await _report(console, snapshot, server)
        else:
            await _follow(console, app, stopping)


def _print_address(console: Console, server: Serving, is_bounded: bool) -> None:
    console.print(f"Dashboard  [bold cyan]{server.url}[/]")
    if not is_bounded:
        console.print(f"Sign in    [bold cyan]{server.sign_in_url()}[/]  (once, within an hour)")
        console.print("Ctrl-C stops it.\n")


async def _follow(console: Console, app: Duly, stopping: asyncio.Event) -> None:
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while not stopping.is_set():
            live.update(_picture(await _look(app)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_S)


async def _until_enough(app: Duly, stopping: asyncio.Event) -> JobsSnapshot:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ENOUGH_S
    while True:
        snapshot = await _look(app)
        if snapshot.is_enough or stopping.is_set() or loop.time() >= deadline:
            return snapshot
        await asyncio.sleep(LOOK_S)


async def _look(app: Duly) -> JobsSnapshot:
    counts: Counter[str] = Counter()
    for each in await app.admin.counts():
        counts[each.state.value] += each.jobs
    jobs = await app.admin.jobs(limit=MANY)
    begun = [job for job in jobs if job.state is not JobState.SCHEDULED]
    return JobsSnapshot(counts, begun[:LATEST])


def _picture(snapshot: JobsSnapshot) -> Group:
    words = Text("  ").join(
        Text(f"{state} {snapshot.counts[state]}", _COLOURS.get(state, "")) for state in JobState
    )
    return Group(words, Text(""), _table(snapshot.latest))


def _table(jobs: list[JobView]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    widths = {"job": 15, "for": 10, "state": 10, "tries": 5, "message": 9}
    for title, width in widths.items():
        table.add_column(title, no_wrap=True, min_width=width)
    for job in jobs:
        state = job.state.value
        table.add_row(
            job.action,
            job.scope,
            Text(state, _COLOURS.get(state, "")),
            str(job.attempts),
            Text(_note(job)[:60], "dim"),
        )
    return table


def _note(job: JobView) -> str:
    """Return a job's error, else its progress."""
    if job.error or job.progress is None:
        return job.error or ""
    noted = json.loads(job.progress)
    return f"{noted['percent']:.0f} % {noted['message']}"


async def _report(console: Console, snapshot: JobsSnapshot, server: Serving) -> None:
    """Print the final snapshot, and check that the server answers."""
    console.print(_picture(snapshot))
    if not snapshot.is_enough:
        raise DulyError(f"the demo did not get far within {ENOUGH_S:g} s: {dict(snapshot.counts)}")
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/readyz") as answer:
        console.print(f"\n{server.url}/readyz answers {answer.status}; everything is stopped now.")
