"""Throughput under conditions that cost extra writes, beside the same load without them.

One worker with 32 slots on PostgreSQL, handlers of 20 ms: rescued jobs, at-most-once jobs, a
progress note per job, fairness with one workspace. Each run is paired with a plain run next to it,
so that load from other processes affects both; a bar is the median of the ratios.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from tests.servers import PostgresServer

from benchmarks.report import Bar, table
from duly import Context, Duly, Flow, WorkerOptions
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobState, WorkerId

SLOTS = 32
HANDLER_S = 0.02
LOST_SHARE = 8
"""One in this many jobs was lost by a worker that died."""
OVERTAKEN_AT_MOST = 4 * SLOTS
"""Jobs that may start before a rescued job in front of them, since other slots continue while its
start is recorded."""
LOST_LEASE_MS = 1


@dataclass(frozen=True, slots=True)
class Condition:
    """How a run differs from the plain run."""

    name: str
    at_least: float
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    notes_progress: bool = False
    loses_jobs: bool = False
    options: dict[str, Any] = field(default_factory=dict)


PLAIN = Condition("plain", 0)
CONDITIONS = (
    Condition("rescued-under-load", 0.8, loses_jobs=True),
    Condition("at-most-once-under-load", 0.8, delivery="at_most_once"),
    Condition("with-progress", 0.8, notes_progress=True),
    Condition("fair-one-workspace", 0.7, options={"fair": True}),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One drained backlog."""

    jobs_per_second: float
    overtaken: int
    """The largest number of jobs that started before a job in front of them."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """Runs under one condition, each paired with a plain run."""

    condition: Condition
    plain: tuple[Run, ...]
    under: tuple[Run, ...]

    @property
    def keeps_order(self) -> bool:
        """Return whether no rescued job was overtaken by too many others."""
        return all(run.overtaken <= OVERTAKEN_AT_MOST for run in self.under)

    @property
    def ratio(self) -> float:
        """Return the median ratio of the pairs; 0 if rescued jobs lost their place."""
        if self.condition.loses_jobs and not self.keeps_order:
            return 0.0
        pairs = zip(self.under, self.plain, strict=True)
        return median(under.jobs_per_second / plain.jobs_per_second for under, plain in pairs)

    def to_json(self) -> dict[str, object]:
        """Return all figures for later comparison."""
        return {"condition": self.condition.name, "ratio": self.ratio} | {
            name: [asdict(run) for run in runs]
            for name, runs in (("plain", self.plain), ("under", self.under))
        }


def measure_pressure(server: PostgresServer, jobs: int, pairs: int) -> list[Pressure]:
    """Measure all conditions."""

    def run(condition: Condition) -> Run:
        url = server.create()
        try:
            return asyncio.run(_drain(url, jobs, condition))
        finally:
            server.drop(url)

    return [_beside_plain(condition, pairs, run) for condition in CONDITIONS]


def _beside_plain(condition: Condition, pairs: int, run: Callable[[Condition], Run]) -> Pressure:
    runs: dict[str, list[Run]] = {PLAIN.name: [], condition.name: []}
    for turn in range(pairs):
        # The second run has a warm server, so the order alternates.
        for each in (PLAIN, condition) if turn % 2 else (condition, PLAIN):
            runs[each.name].append(run(each))
    return Pressure(condition, tuple(runs[PLAIN.name]), tuple(runs[condition.name]))


async def _drain(url: str, jobs: int, condition: Condition) -> Run:
    flow = Flow("bench")
    begun: list[int] = []
    began_at: list[float] = []
    all_begun = asyncio.Event()

    @flow.action(delivery=condition.delivery)
    async def step(ctx: Context, number: int) -> None:
        if not begun:
            began_at.append(time.perf_counter())
        begun.append(number)
        if condition.notes_progress:
            ctx.progress(number / jobs)
        await asyncio.sleep(HANDLER_S)
        if len(begun) >= jobs:
            all_begun.set()

    app = Duly(url, flows=[flow])
    options = WorkerOptions(slots=SLOTS, **condition.options)
    async with app:
        await app.client.enqueue_many(step, list(range(jobs)))
        if condition.loses_jobs:
            await _lose(app, jobs // LOST_SHARE)
        # The end of the block waits until every completion is stored.
        async with app.running(options, keeper=False, planner=False):
            await all_begun.wait()
        seconds = time.perf_counter() - began_at[0]
    await _check_all_succeeded(url, flow, jobs)
    return Run(jobs / seconds, most_overtaken(begun))


async def _lose(app: Duly, jobs: int) -> None:
    """Claim jobs like a worker that is killed before it stores anything."""
    dead = ClaimRequest(WorkerId("killed"), limit=jobs, lease_ms=LOST_LEASE_MS)
    claims = await app.store.claim_jobs(dead)
    if len(claims.jobs) != jobs:
        raise RuntimeError(f"{len(claims.jobs)} of {jobs} jobs were claimed to be lost")


async def _check_all_succeeded(url: str, flow: Flow, jobs: int) -> None:
    async with Duly(url, flows=[flow]) as app:
        counts = await app.store.count_jobs()
    done = sum(each.jobs for each in counts if each.state is JobState.SUCCEEDED)
    if done != jobs:
        raise RuntimeError(f"{done} of {jobs} jobs succeeded")


def most_overtaken(begun: Sequence[int]) -> int:
    """Return the largest number of later jobs that started before a job."""
    return max((position - number for position, number in enumerate(begun)), default=0)


def pressure_bars(measured: Sequence[Pressure]) -> list[Bar]:
    """Return the bars to meet."""
    return [
        Bar(each.condition.name, each.ratio, each.condition.at_least, places=2) for each in measured
    ]


def pressure_text(measured: Sequence[Pressure]) -> str:
    """Return the table to print."""
    rows = [["PostgreSQL, 32 slots, handlers of 20 ms", "jobs/s", "plain", "ratio", "overtaken"]]
    for each in measured:
        rates = [median(run.jobs_per_second for run in runs) for runs in (each.under, each.plain)]
        overtaken = max(run.overtaken for run in each.under)
        words = [f"{rate:,.0f}" for rate in rates]
        rows.append([each.condition.name, *words, f"{each.ratio:.2f}", str(overtaken)])
    return table(rows)
