"""Measures lateness in steady state: the start of a handler less the run time of its job.

A real `duly run` plans and works with default settings. Meanwhile this process creates schedules
that fire two seconds later, inside the look-ahead, and enqueues plain jobs with the same run time.
The plain jobs are the control: the same process picks them up at the same moments without a
schedule, so the ratio of the two shows what scheduling adds, with the machine's noise in both. A
job that never starts stops the benchmark.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.jobs_peer_environments import ROOT
from benchmarks.report import part_of
from benchmarks.scheduler_app import FLOW, JOURNAL, URL, flow, note
from benchmarks.scheduler_rows import EMPTIED, Desk, Lost, now_ms, opened
from duly import Duly, Scope, every, once
from duly.engine.ids import new_id
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId

INTERVAL_S = 10
NEW_PER_S = 10
PLAIN_PER_NEW = 5
NEW_AHEAD = timedelta(seconds=2)
REST_S = 60.0
STOP_S = 30.0
RUN = (sys.executable, "-c", "from duly.cli import main; main()", "run", "--drain", "5")


@dataclass(frozen=True, slots=True)
class Load:
    """The load on a store."""

    created: int
    due: int
    per_s: int
    seconds: float
    lead_s: float
    """Time for the process to start and to plan its first minute."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of the jobs with a run time in the window: made by schedules, and plain ones."""

    jobs: int
    p50_ms: float
    p99_ms: float
    new_jobs: int
    """Jobs of schedules that were created inside the look-ahead."""
    new_p99_ms: float
    plain_jobs: int
    plain_p99_ms: float
    commits_per_s: float | None
    """Transactions per second of the whole database; SQLite does not count them."""

    @property
    def ratio(self) -> float:
        """Return p99 of scheduled jobs / p99 of plain jobs."""
        return self.p99_ms / self.plain_p99_ms


async def measure_steady(desk: Desk, folder: Path, load: Load) -> Lateness:
    """Apply the load and wait until the last job has ended; return the lateness."""
    journal = folder / f"journal-{new_id('')}"
    first_at = await _create(desk, load)
    with _serving(desk.url, journal):
        await _until(first_at.timestamp() + 2)
        await _at_rest(desk)
        started_ms, before = now_ms(), _commits(desk)
        await _create_new(desk.url, load.seconds)
        ended_ms, after = now_ms(), _commits(desk)
        await asyncio.sleep(NEW_AHEAD.total_seconds() + 1)
        await _at_rest(desk)
    spent = (ended_ms - started_ms) / 1000
    commits = None if before is None or after is None else (after - before) / spent
    # The window in which schedules created meanwhile are due.
    ahead_ms = NEW_AHEAD // timedelta(milliseconds=1)
    return _lateness(desk, journal, (started_ms + ahead_ms, ended_ms + ahead_ms), commits)


async def _at_rest(desk: Desk) -> None:
    """Wait until the backlog of the start is done and no job waits longer than a second."""
    ends_at = time.time() + REST_S
    waiting = "jobs WHERE state IN ('scheduled', 'queued', 'processing') AND run_at_ms BETWEEN "
    while time.time() < ends_at:
        late_ms = now_ms() - 1_000
        begun = desk.count(f"jobs WHERE action = '{FLOW}.note'")
        if begun and not desk.count(f"{waiting} 0 AND {late_ms}"):
            return
        await asyncio.sleep(0.5)
    raise Lost(f"jobs wait after {REST_S:.0f} s: this machine cannot keep up")


async def _create(desk: Desk, load: Load) -> datetime:
    """Store system schedules with times spread evenly over their interval; return the first."""
    for table in EMPTIED:
        desk.run(f"DELETE FROM duly_{table}")
    store = opened(desk.url)
    count = load.per_s * INTERVAL_S
    first_at = datetime.now(UTC) + timedelta(seconds=load.lead_s)
    writes = []
    for number in range(count):
        start_at = first_at + timedelta(milliseconds=number * INTERVAL_S * 1000 // count)
        trigger = every(seconds=INTERVAL_S, start_at=start_at)
        key = ScheduleKey(FLOW, "system", f"steady-{number:06}")
        writes.append(ScheduleWrite(key, ScheduleId(new_id("sch_")), Definition(trigger, "note")))
    await store.put_schedules(writes)
    await store.close()
    return first_at


async def _create_new(url: str, seconds: float) -> None:
    """Create schedules and enqueue plain jobs through the application's API."""
    ends_at = time.time() + seconds
    async with Duly(url, flows=[flow]) as app:
        number = 0
        while time.time() < ends_at:
            due_at = time.time() + 1 / NEW_PER_S
            mine = app.schedules(flow).of(Scope("user", f"new-{number}"))
            soon = datetime.now(UTC) + NEW_AHEAD
            await mine.create("soon", once(soon), action="note")
            await app.client.enqueue_many(note, [None] * PLAIN_PER_NEW, run_at=soon)
            number += 1
            await _until(due_at)


@contextlib.contextmanager
def _serving(url: str, journal: Path) -> Iterator[None]:
    """Run one process that plans and works, until the end of the block."""
    log = journal.with_suffix(".log")
    with log.open("w") as said:
        process = subprocess.Popen(
            [*RUN, "benchmarks.scheduler_app:app"],
            cwd=ROOT,
            env=os.environ | {URL: url, JOURNAL: str(journal)},
            stdout=said,
            stderr=said,
        )
    try:
        yield
        if process.poll() is not None:
            raise Lost(f"duly run ended early: {log.read_text()[-300:]}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _lateness(
    desk: Desk, journal: Path, window: tuple[int, int], commits: float | None
) -> Lateness:
    lines = (line.split() for line in journal.read_text().splitlines())
    began = {job_id: float(at_ms) for job_id, at_ms in lines}
    jobs = desk.run(
        "SELECT id, run_at_ms, scope, schedule_id, state FROM duly_jobs WHERE action = :action "
        "AND run_at_ms >= :from_ms AND run_at_ms < :until_ms",
        action=f"{FLOW}.note",
        from_ms=window[0],
        until_ms=window[1],
    )
    lost = Counter(job.state for job in jobs if job.id not in began)
    if lost or not jobs:
        raise Lost(f"{lost.total()} of {len(jobs)} jobs did not begin: {dict(lost)}")
    late = [began[job.id] - job.run_at_ms for job in jobs if job.schedule_id]
    new = [began[job.id] - job.run_at_ms for job in jobs if job.scope != "system"]
    plain = [began[job.id] - job.run_at_ms for job in jobs if not job.schedule_id]
    return Lateness(
        jobs=len(late),
        p50_ms=part_of(late, 0.5),
        p99_ms=part_of(late, 0.99),
        new_jobs=len(new),
        new_p99_ms=part_of(new, 0.99),
        plain_jobs=len(plain),
        plain_p99_ms=part_of(plain, 0.99),
        commits_per_s=commits,
    )


def _commits(desk: Desk) -> int | None:
    if not desk.is_postgresql:
        return None
    statement = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    return int(desk.run(statement)[0][0])


async def _until(at_s: float) -> None:
    await asyncio.sleep(max(0.0, at_s - time.time()))
