"""Ten thousand schedules of an ordinary product: 1,000 hourly, 5,000 daily, 4,000 weekly.

What a planner's run costs, how many jobs an occurrence gets when five planners go for it at once,
and what a planner costs that has nothing to do. A loop that reads every schedule would read them
all in each run, and five such loops without a ledger would make five jobs of one occurrence.
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
"""The first run of a planner finds so much at once; later ones only what is newly due."""
READ = (
    "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables "
    "WHERE relname IN ('duly_schedule_index', 'duly_schedule_rules', 'duly_resources')"
)


@dataclass(frozen=True, slots=True)
class Share:
    """So many schedules that fire so often."""

    hourly: int
    daily: int
    weekly: int

    @property
    def total(self) -> int:
        return self.hourly + self.daily + self.weekly

    def due_in(self, seconds: float) -> float:
        """How many come due in a time, on average."""
        return seconds * (self.hourly / 3_600 + self.daily / 86_400 + self.weekly / 604_800)


@dataclass(frozen=True, slots=True)
class Mix:
    """Of planners over one mix of schedules."""

    schedules: int
    due: int
    """Schedules that fired in the run that was counted."""
    statements: int
    rows_read: int
    """Of the index, the rules and the documents."""
    statements_without: int
    """Of a run that finds nothing due."""
    rows_read_without: int
    occurrences: int
    jobs: int
    """Made by five planners at once, of so many occurrences."""
    empty_p50_ms: float
    empty_p99_ms: float
    """How long a step takes that finds nothing."""
    idle_queries_per_s: float
    idle_cpu_percent: float

    @property
    def duplicates(self) -> int:
        """Jobs beyond one for each occurrence."""
        return self.jobs - self.occurrences


def definitions(share: Share) -> list[Definition]:
    """The mix, with minutes and hours that chance decides, the same each time."""
    random = Random(SEED)
    rules = [f"{random.randrange(60)} * * * *" for _ in range(share.hourly)]
    for days, count in (("*", share.daily), ("MON", share.weekly)):
        rules += [f"{random.randrange(60)} {random.randrange(24)} * * {days}" for _ in range(count)]
    usual = definition(0)
    return [Definition(cron(rule), usual.action, input=usual.input) for rule in rules]


async def measure_mix(desk: Desk, stores: Sequence[Store], share: Share, idle_s: float) -> Mix:
    """One store for each of the planners."""
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
    """Statements of one planner's run, and rows that they read."""
    # The store's connection reports what it read before with its next transaction after a second.
    await asyncio.sleep(1.2)
    await store.now_ms()
    before, counted.count = await _rows_read(desk), 0
    await Planner(store, _options()).run_once()
    statements = counted.count
    return statements, await _rows_read(desk) - before


async def _rows_read(desk: Desk) -> int:
    """Servers tell their counts with a delay unless asked; a second connection has to wait."""
    # A backend reports at most once a second, and only between transactions.
    await asyncio.sleep(1.2)
    desk.run("SELECT pg_stat_force_next_flush()")  # what this connection itself read before
    return int(desk.run(READ)[0][0])


def _options() -> PlannerOptions:
    return PlannerOptions(look_ahead_s=0, flows=(FLOW,))


async def _race(desk: Desk, stores: Sequence[Store], count: int) -> tuple[int, int]:
    """All are due, and every planner takes what it gets."""
    desk.reset(now_ms(), count)
    await asyncio.gather(*(_drain(store) for store in stores))
    different = "(SELECT DISTINCT schedule_id, nominal_ms FROM duly_jobs) AS d"
    occurrences = int(desk.run(f"SELECT count(*) FROM {different}")[0][0])
    if occurrences != count:
        raise Lost(f"{count} schedules were due, {occurrences} fired")
    return occurrences, desk.count("jobs")


async def _drain(store: Store) -> None:
    """In small steps, so that planners meet; the last one goes when nothing is due any more."""
    report = PlanReport()
    while report.rows or report.next_run_at_ms is None or report.next_run_at_ms <= report.now_ms:
        report = await store.plan_occurrences(PlanRequest(limit=100))


async def _empty(store: Store) -> tuple[float, float]:
    """Half of the steps that find nothing take no longer than this, and nearly all than that."""
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        await store.plan_occurrences(PlanRequest())
        times.append((time.perf_counter() - began) * 1000)
    return part_of(times, 0.5), part_of(times, 0.99)


async def _idle(store: Store, counted: _Statements, seconds: float) -> tuple[float, float]:
    """Queries a second and the share of a core, at default settings."""
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
    """Counts statements on a store's own connections."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        engine = cast(SqlStore, store)._engine  # noqa: SLF001 - counted where they are sent
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, *_: object) -> None:
        self.count += 1
