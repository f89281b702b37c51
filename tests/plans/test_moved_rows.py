"""Plans of rows that have moved often: no extra cost while a snapshot keeps their old versions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

import psycopg
import pytest
from benchmarks.blocks import Blocks

from duly.engine.ids import new_id
from duly.model.dispatches import DispatchAnswer, DispatchClaim
from duly.model.plans import PlanRequest, PlanSettings
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, HandOver, Policies, ScheduleId
from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from duly.triggers import every
from duly.triggers.instants import from_ms
from tests.rows import NOON_MS

FLOW = "bulk"
ROWS = 20
IDLE = 400
"""Rows that never move, so that the index has several pages."""
MOVES = 200
INDEX = "duly_schedule_index"


class Step(NamedTuple):
    """A verb that moves due rows, and the tables whose statements are counted."""

    hand_over: HandOver
    take: Callable[[SqlStore], Awaitable[int]]
    table: str


async def _plan(store: SqlStore) -> int:
    return (await store.plan_occurrences(PlanRequest(limit=ROWS, flows=(FLOW,)))).rows


async def _claim(store: SqlStore) -> int:
    return len(await store.claim_due(None, ROWS, FLOW))


async def _post(store: SqlStore) -> int:
    claim = DispatchClaim(new_id("tick_"), limit=ROWS, flows=(FLOW,))
    taken = await store.claim_dispatches(claim)
    answers = [DispatchAnswer(each.schedule_id, each.nominal_ms, "closed") for each in taken]
    await store.end_dispatches(claim.claim_id, answers)
    return len(taken)


STEPS = {
    "plan": Step("jobs", _plan, "duly_"),
    "claim rows": Step("jobs", _claim, "duly_"),
    "claim dispatches": Step("http", _post, INDEX),
}


def _write(number: int, hand_over: HandOver) -> ScheduleWrite:
    trigger = every(minutes=1) if number < ROWS else every(days=365)
    # Without running markers: their dead versions are still read (ADR 0031).
    policies = Policies(overlap="allow")
    definition = Definition(trigger, "send", policies=policies, hand_over=hand_over)
    key = ScheduleKey(FLOW, f"user:{number}", "digest")
    return ScheduleWrite(key, ScheduleId(f"sch_{number:05}"), definition)


@pytest.mark.parametrize("name", STEPS)
def test_rows_that_moved_often_cost_no_more(postgres_url: str, name: str) -> None:
    step, clock = STEPS[name], ManualClock(from_ms(NOON_MS))

    async def measured(store: SqlStore) -> Blocks:
        clock.advance(minutes=1)
        blocks = Blocks(step.table)
        with blocks.counting():
            assert await step.take(store) == ROWS
        return blocks

    async def run() -> tuple[Blocks, Blocks]:
        planning = PlanSettings(look_ahead_ms=0)
        store = cast(SqlStore, open_store(postgres_url, clock=clock, planning=planning))
        writes = [_write(number, step.hand_over) for number in range(ROWS + IDLE)]
        await store.put_schedules(writes)
        await measured(store)
        before = await measured(store)
        for _ in range(MOVES):
            clock.advance(minutes=1)
            assert await step.take(store) == ROWS
        after = await measured(store)
        await store.close()
        return before, after

    with psycopg.connect(postgres_url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT 1")
        before, after = asyncio.run(run())
    assert after.blocks <= 2 * before.blocks, (before.texts, after.texts)
