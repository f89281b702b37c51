"""Counts the blocks that a planning step reads while a held snapshot keeps dead index entries:
those of schedules that ran once and have no row any more, and those of times that recurring
schedules have left.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

import psycopg

from benchmarks.blocks import Blocks
from benchmarks.scheduler_rows import FLOW, Desk, Lost, now_ms
from duly.engine.ids import new_id
from duly.model.plans import PlanRequest, PlanSettings
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, Policies, ScheduleId
from duly.stores import open_store
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.triggers import every
from duly.triggers.instants import from_ms

IDLE = 1_000
"""Schedules that no step plans."""
CHUNKS = 30
"""The planner runs a step after each chunk, as planners do."""
DUE = 20
"""Rows that each step plans and advances."""
INDEX = "duly_schedule_index"
ENTER = """
    WITH ruled AS (
        INSERT INTO duly_schedule_rules
            (schedule_id, flow, scope, name, trigger_json, zone, hand_over, policies)
        SELECT 'passed_' || (:from_ms + i), :flow, 'user:' || (:from_ms + i), 'once', '', 'UTC',
            'jobs', ''
        FROM generate_series(1, :many) AS i RETURNING row_id
    )
    INSERT INTO duly_schedule_index
        (row_id, flow, priority, trigger_version, nominal_ms, run_at_ms, version, hand_over)
    SELECT row_id, :flow, 0, 1000, :from_ms + row_id, :from_ms + row_id, 1, 'jobs' FROM ruled
"""
LEAVE = "DELETE FROM duly_schedule_index WHERE trigger_version = 1000"
FORGET = "DELETE FROM duly_schedule_rules WHERE name = 'once'"


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """Blocks read by those statements of a step that name the index."""

    passed: int
    moves: int
    """Moves of each row that the step plans."""
    blocks_before: int
    blocks_after: int
    """Blocks read after schedules have passed."""
    blocks_after_moves: int
    """Blocks read after the rows have moved as well."""

    @property
    def ratio(self) -> float:
        """Return the worst ratio of blocks read after / before."""
        return max(self.blocks_after, self.blocks_after_moves) / self.blocks_before

    def __str__(self) -> str:
        return (
            f"held snapshot: a step reads {self.blocks_before} blocks of the index, "
            f"{self.blocks_after} after {self.passed:,} schedules have passed, "
            f"{self.blocks_after_moves} after its {DUE} rows have moved {self.moves:,} times"
        )

    def to_json(self) -> dict[str, object]:
        """Return all figures for later comparison."""
        return asdict(self)


async def measure_held_plan(url: str, passed: int, moves: int) -> HeldPlan:
    """Hold a snapshot, let schedules pass and rows move, and count the blocks a step reads."""
    print(
        f"benchmark: planning under a held snapshot, {passed:,} passed, {moves:,} moves",
        file=sys.stderr,
    )
    clock = ManualClock(from_ms(now_ms()))
    planning = PlanSettings(look_ahead_ms=0)
    desk, store = Desk(url), open_store(url, clock=clock, planning=planning, connections=2)
    try:
        await store.put_schedules([_write(number) for number in range(DUE + IDLE)])
        desk.settle()
        with psycopg.connect(url) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SELECT count(*) FROM duly_schedule_index")
            await _counted(store, clock)
            before = await _counted(store, clock)
            for chunk in range(CHUNKS):
                first_ms = clock.now_ms() - 86_400_000 + chunk * passed
                desk.run(ENTER, from_ms=first_ms, many=passed // CHUNKS, flow=FLOW)
                desk.run(LEAVE)
                desk.run(FORGET)
                await _step(store, clock)
            after = await _counted(store, clock)
            for _ in range(moves):
                await _step(store, clock)
            after_moves = await _counted(store, clock)
    finally:
        await store.close()
        desk.close()
    return HeldPlan(passed, moves, before, after, after_moves)


def _write(number: int) -> ScheduleWrite:
    trigger = every(minutes=1) if number < DUE else every(days=365)
    definition = Definition(trigger, "send", policies=Policies(overlap="allow"))
    key = ScheduleKey(FLOW, f"user:{number}", "digest")
    return ScheduleWrite(key, ScheduleId(new_id("sch_")), definition)


async def _counted(store: Store, clock: ManualClock) -> int:
    counted = Blocks(INDEX)
    with counted.counting():
        await _step(store, clock)
    return counted.blocks


async def _step(store: Store, clock: ManualClock) -> None:
    """Plan the rows that become due in the next minute, which advances each of them once."""
    clock.advance(minutes=1)
    report = await store.plan_occurrences(PlanRequest(flows=(FLOW,)))
    if report.rows != DUE:
        raise Lost(f"{DUE} rows were due; {report.rows} were planned")
