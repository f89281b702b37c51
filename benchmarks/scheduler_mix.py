"""Ten thousand schedules of an ordinary product: 1,000 hourly, 5,000 daily, 4,000 weekly.

Measures the cost of a planner's run, how many jobs an occurrence gets when five planners compete,
and the cost of an idle planner. A loop that reads every schedule would read all of them in each
run, and five such loops without a ledger would make five jobs for one occurrence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from sqlalchemy import event

from benchmarks.report import part_of
from benchmarks.scheduler_rows import FLOW, Desk, Lost, definition, now_ms, write
from duly import cron
from duly.model.plans import PlanReport, PlanRequest
from duly.model.schedules import Definition
from duly.runtime import Planner, PlannerOptions
from duly.stores.port import Store
from duly.stores.sql.store import SqlStore

PLANNERS = 5
SEED = 2026
STEPS = 200
WINDOW_S = 120.0
"""The window of due schedules that a planner's first run finds; later runs find less."""
READ = (
    "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables "
    "WHERE relname IN ('duly_schedule_index', 'duly_schedule_rules', 'duly_resources')"
)


@dataclass(frozen=True, slots=True)
class Share:
    """Numbers of schedules by frequency."""

    hourly: int
    daily: int
    weekly: int

    @property
    def total(self) -> int:
        return self.hourly + self.daily + self.weekly

    def due_in(self, seconds: float) -> float:
        """Return how many become due in a period, on average."""
        return seconds * (self.hourly / 3_600 + self.daily / 86_400 + self.weekly / 604_800)


@dataclass(frozen=True, slots=True)
class Mix:
    """Figures of planners over one mix of schedules."""

    schedules: int
    due: int
    """Schedules that fired in the counted run."""
    statements: int
    rows_read: int
    """Rows of the index, the rules and the documents."""
    statements_without: int
    """Statements of a run that finds nothing due."""
    rows_read_without: int
    occurrences: int
    jobs: int
    """Jobs that five concurrent planners made for these occurrences."""
    empty_p50_ms: float
    empty_p99_ms: float
    """Duration of a step that finds nothing."""
    idle_queries_per_s: float
    idle_cpu_percent: float

    @property
    def duplicates(self) -> int:
        """Return the number of jobs beyond one per occurrence."""
        return self.jobs - self.occurrences


def definitions(share: Share) -> list[Definition]:
    """Return the mix, with random minutes and hours from a fixed seed."""
    random = Random(SEED)
    rules = [f"{random.randrange(60)} * * * *" for _ in range(share.hourly)]
    for days, count in (("*", share.daily), ("MON", share.weekly)):
        rules += [f"{random.randrange(60)} {random.randrange(24)} * * {days}" for _ in range(count)]
    usual = definition(0)
    return [Definition(cron(rule), usual.action, input=usual.input) for rule in rules]


async def measure_mix(desk: Desk, stores: Sequence[Store], share: Share, idle_s: float) -> Mix:
    """Measure the mix; each planner has its own store."""
    store = stores[0]
    asked = [write(number, each) for number, each in enumerate(definitions(share))]
    for start in range(0, len(asked), 5_000):
        await store.put_schedules(asked[start : start + 5_000])
    due = max(1, round(share.due_in(WINDOW_S)))
    desk.reset(now_ms(), due)
    counted = _Statements(store)
    with_due = await _run(desk, counted, store)
    without = await _run(desk, counted, store)
    occurrences, jobs = await _race(desk, stores, share.total)
    desk.run("UPDATE duly_schedule_index SET run_at_ms = run_at_ms + 86400000")
    empty = await _empty(store)
    idle = await _idle(store, counted, idle_s)
    return Mix(share.total, due, *with_due, *without, occurrences, jobs, *empty, *idle)


async def _run(desk: Desk, counted: _Statements, store: Store) -> tuple[int, int]:
    """Run a planner once; return the number of statements and of rows that they read."""
    # The store's connection reports earlier reads with its next transaction after a second.
    await asyncio.sleep(1.2)
    await store.now_ms()
    before, counted.count = await _rows_read(desk), 0
    await Planner(store, _options()).run_once()
    statements = counted.count
    return statements, await _rows_read(desk) - before


async def _rows_read(desk: Desk) -> int:
    """Return the rows read so far, after waiting for the server to publish its statistics."""
    # A backend reports at most once a second, and only between transactions.
    await asyncio.sleep(1.2)
    desk.run("SELECT pg_stat_force_next_flush()")  # publishes the reads of this connection
    return int(desk.run(READ)[0][0])


def _options() -> PlannerOptions:
    return PlannerOptions(look_ahead_s=0, flows=(FLOW,))


async def _race(desk: Desk, stores: Sequence[Store], count: int) -> tuple[int, int]:
    """Make all schedules due and let the planners compete; return occurrences and jobs."""
    desk.reset(now_ms(), count)
    await asyncio.gather(*(_drain(store) for store in stores))
    different = "(SELECT DISTINCT schedule_id, nominal_ms FROM duly_jobs) AS d"
    occurrences = int(desk.run(f"SELECT count(*) FROM {different}")[0][0])
    if occurrences != count:
        raise Lost(f"{count} schedules were due, {occurrences} fired")
    return occurrences, desk.count("jobs")


async def _drain(store: Store) -> None:
    """Plan in small steps, so that planners compete, until nothing is due."""
    report = PlanReport()
    while report.rows or report.next_run_at_ms is None or report.next_run_at_ms <= report.now_ms:
        report = await store.plan_occurrences(PlanRequest(limit=100))


async def _empty(store: Store) -> tuple[float, float]:
    """Return p50 and p99 of the duration of steps that find nothing, in ms."""
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        await store.plan_occurrences(PlanRequest())
        times.append((time.perf_counter() - began) * 1000)
    return part_of(times, 0.5), part_of(times, 0.99)


async def _idle(store: Store, counted: _Statements, seconds: float) -> tuple[float, float]:
    """Return queries per second and CPU per cent of an idle planner at default settings."""
    planner = Planner(store, PlannerOptions(flows=(FLOW,)))
    running = asyncio.create_task(planner.run())
    counted.count = 0
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    spent = time.perf_counter() - began
    answer = counted.count / spent, (time.process_time() - cpu) / spent * 100
    planner.stop()
    await running
    return answer


class _Statements:
    """Counts statements on a store's connections."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        engine = cast(SqlStore, store)._engine  # noqa: SLF001 - counted where they are sent
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, *_: object) -> None:
        self.count += 1
