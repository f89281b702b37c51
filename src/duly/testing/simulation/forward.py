"""Fast-forward: run weeks of an application's own schedules in seconds, for its tests.

Runs the application's handlers at virtual times, on its own memory store, with the production
planner, worker and keeper. Advances the application's ManualClock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from duly.app import Duly
from duly.errors import InvalidInput
from duly.model.jobs import JobState
from duly.model.stored_jobs import JobFilter, Retention
from duly.runtime import KeeperOptions, Planner, PlannerOptions, WorkerOptions
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.simulation.loop import VirtualLoop
from duly.testing.simulation.notes import Notes, Run

_HOUR_S, _DAY_S = 3_600.0, 86_400.0
_PAGE = 1_000
_LOOK_S = 1.0
"""Seconds between two checks for new schedules while a handler runs."""
_LAST_S = 0.002
"""Seconds added at the end, so that work due at the last instant is still claimed."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The result of fast_forward(): the runs, and the jobs left waiting."""

    since: datetime
    until: datetime
    runs: tuple[Run, ...]
    """Attempts, in the order they ended."""
    waiting: Counter[str]
    """Due jobs that were never claimed, by action: no flow registers it."""

    @property
    def fires(self) -> Counter[str]:
        """Number of occurrences that ran, by schedule; retries are not counted again."""
        ran = {(each.schedule, each.job_id) for each in self.runs}
        return Counter(schedule for schedule, _ in ran if schedule is not None)

    @property
    def failures(self) -> tuple[Run, ...]:
        """Final failed attempts: the job is dead."""
        return tuple(each for each in self.runs if each.state is JobState.DEAD)


async def fast_forward(
    app: Duly, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> Forwarded:
    """Advance an application on `memory:` with a ManualClock, and run everything due on the way.

    The last instant is included. Sync handlers run one after another. Handlers may await
    asyncio.sleep, which takes no real time, but not sockets. Another store or clock, or a duration
    that is not positive, is refused with InvalidInput.
    """
    span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    clock = app.config.clock
    if app.url != "memory:" or not isinstance(clock, ManualClock):
        raise InvalidInput(
            'fast_forward needs a memory store and a ManualClock: use Duly("memory:", '
            f"clock=ManualClock(...)); this application is on {app.safe_url}"
        )
    if span <= timedelta():
        raise InvalidInput(f"fast_forward needs a positive duration; got {span}")
    # On its own thread: the caller's event loop runs in real time and cannot be reused.
    return await asyncio.to_thread(_forward, app, clock, span)


def _forward(app: Duly, clock: ManualClock, span: timedelta) -> Forwarded:
    since = clock.now()
    loop = VirtualLoop()
    loop.on_jump = lambda now_s: clock.set(since + timedelta(seconds=now_s))
    notes = Notes(app.store, clock)
    waiting = loop.run(_let_pass(app.on(cast(Store, notes)), notes, span.total_seconds()))
    if clock.now() <= since + span + timedelta(seconds=_LAST_S):
        clock.set(since + span)
    return Forwarded(since, clock.now(), tuple(notes.runs), waiting)


async def _let_pass(app: Duly, notes: Notes, seconds: float) -> Counter[str]:
    """Run the loops for `seconds`, let handlers finish; return the jobs left queued, by action."""
    # This worker has the store to itself, so polling, renewing and heartbeats can be rare.
    worker = app.worker(
        WorkerOptions(
            poll_s=_DAY_S,
            lease_s=7 * _DAY_S,
            heartbeat_s=_DAY_S,
            progress_s=_DAY_S,
            drain_s=_DAY_S,
        )
    )
    retention = Retention(succeeded_ms=int(_HOUR_S * 1_000))
    keeper = app.keeper(
        KeeperOptions(period_s=_HOUR_S, silent_worker_s=7 * _DAY_S, retention=retention)
    )
    planning = asyncio.create_task(_plan(app.planner(PlannerOptions(look_ahead_s=0)), notes))
    others = [asyncio.create_task(worker.run()), asyncio.create_task(keeper.run())]
    passing = asyncio.create_task(asyncio.sleep(seconds + _LAST_S))
    # A loop that ends early has failed; its error is raised below.
    await asyncio.wait((passing, planning, *others), return_when=asyncio.FIRST_COMPLETED)
    for task in (passing, planning):
        task.cancel()
    worker.stop()
    keeper.stop()
    notes.stop()
    await asyncio.wait((planning, *others))
    for task in (planning, *others):
        if not task.cancelled():
            task.result()
    left = await app.store.list_jobs(JobFilter(state=JobState.QUEUED), limit=_PAGE)
    return Counter(job.action for job in left)


async def _plan(planner: Planner, notes: Notes) -> None:
    """Plan due rows, then sleep until the next one is due.

    Only handlers can add an earlier row, so it also checks while they run and after each one ends.
    """
    while True:
        report = await planner.run_once()
        rest_ms = None if report.next_run_at_ms is None else report.next_run_at_ms - report.now_ms
        rest_s = None if rest_ms is None else max(rest_ms, 1) / 1_000
        if notes.is_busy:
            rest_s = _LOOK_S if rest_s is None else min(rest_s, _LOOK_S)
        await notes.changed.wait(rest_s)
