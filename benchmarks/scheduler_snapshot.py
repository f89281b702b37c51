"""Blocks that one planning step reads while a transaction keeps the server from removing the index
entries of schedules that have passed: those that ran once, and have no row any more.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

import psycopg

from benchmarks.blocks import Blocks
from benchmarks.scheduler_rows import FLOW, Desk, Lost, create, now_ms, opened
from duly.plan_store import PlanRequest
from duly.store import Store

SCHEDULES = 1_000
CHUNKS = 30
"""The planner takes a step after each chunk, as planners do."""
DUE = 20
"""Rows that the step plans."""
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
MAKE_DUE = (
    "UPDATE duly_schedule_index SET nominal_ms = :ms, run_at_ms = :ms WHERE row_id IN "
    "(SELECT row_id FROM duly_schedule_index ORDER BY row_id LIMIT :due)"
)


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """Blocks of the index that a step reads, before and after schedules have passed."""

    passed: int
    blocks_before: int
    blocks_after: int

    @property
    def ratio(self) -> float:
        """Return how many times as much it reads."""
        return self.blocks_after / self.blocks_before

    def __str__(self) -> str:
        return (
            f"held snapshot: a step reads {self.blocks_before} blocks of the index, "
            f"{self.blocks_after} after {self.passed:,} schedules have passed"
        )

    def to_json(self) -> dict[str, object]:
        """For later comparison."""
        return asdict(self)


async def measure_held_plan(url: str, passed: int) -> HeldPlan:
    """Hold a snapshot, let schedules pass, and count what a step reads."""
    print(f"benchmark: planning under a held snapshot, {passed:,} passed", file=sys.stderr)
    desk, store = Desk(url), opened(url)
    try:
        await create(store, SCHEDULES)
        desk.settle()
        with psycopg.connect(url) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SELECT count(*) FROM duly_schedule_index")
            await _step(store, desk)
            before = await _step(store, desk)
            for chunk in range(CHUNKS):
                from_ms = now_ms() - 86_400_000 + chunk * passed
                desk.run(ENTER, from_ms=from_ms, many=passed // CHUNKS, flow=FLOW)
                desk.run(LEAVE)
                desk.run(FORGET)
                await store.plan_occurrences(PlanRequest(flows=(FLOW,)))
            after = await _step(store, desk)
    finally:
        await store.close()
        desk.close()
    return HeldPlan(passed, before, after)


async def _step(store: Store, desk: Desk) -> int:
    desk.run(MAKE_DUE, ms=now_ms() - 1_000, due=DUE)
    counted = Blocks(INDEX)
    with counted.counting():
        report = await store.plan_occurrences(PlanRequest(flows=(FLOW,)))
    if report.rows < DUE:
        raise Lost(f"{DUE} rows were due; {report.rows} were planned")
    return counted.blocks
