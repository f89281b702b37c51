"""Tests of the virtual event loop: virtual time, seeded order of tasks, and cleanup."""

import asyncio
import random
import threading
from datetime import UTC, datetime, timedelta

import pytest

from duly.engine.ids import ids_from, new_id, new_ids
from duly.testing.clock import ManualClock
from duly.testing.simulation.loop import HOST, NothingLeft, VirtualClock, VirtualLoop

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
A_SECOND, A_DAY_S, A_WEEK_S = 1.0, 86_400.0, 604_800.0


async def order_of_tasks(count: int) -> list[int]:
    """Return the order in which `count` tasks that are ready at the same time run."""
    order: list[int] = []

    async def come(number: int) -> None:
        await asyncio.sleep(0)
        order.append(number)

    await asyncio.gather(*(come(number) for number in range(count)))
    return order


def test_a_frozen_process_continues_later() -> None:
    loop = VirtualLoop()
    looked: list[tuple[str, float]] = []

    async def look(process: str) -> None:
        HOST.set(process)
        for _ in range(3):
            await asyncio.sleep(A_SECOND)
            looked.append((process, loop.time()))

    async def both() -> None:
        tasks = [asyncio.create_task(look(each)) for each in ("one", "other")]
        await asyncio.sleep(1.5 * A_SECOND)
        loop.freeze("one", 10)
        await asyncio.wait(tasks)

    loop.run(both())
    assert [at for process, at in looked if process == "other"] == [1, 2, 3]
    assert [at for process, at in looked if process == "one"] == [1, 11.5, 12.5]


def test_thawing_ends_every_freeze() -> None:
    loop = VirtualLoop()
    ended = asyncio.Event()

    async def stand() -> None:
        HOST.set("one")
        await asyncio.sleep(0)
        await ended.wait()

    async def freeze() -> float:
        task = asyncio.create_task(stand())
        await asyncio.sleep(A_SECOND)
        loop.freeze("one", A_DAY_S)
        ended.set()
        await asyncio.sleep(A_SECOND)
        assert not task.done()
        loop.thaw()
        await task
        return loop.time()

    assert loop.run(freeze()) == 2


def test_waiting_for_a_week_is_a_jump() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(START, loop)
    skewed = VirtualClock(START, loop, skew_s=-60)
    jumps: list[float] = []
    loop.on_jump = jumps.append
    loop.run(asyncio.sleep(A_WEEK_S))
    assert clock.now() == START + timedelta(days=7)
    assert skewed.now() == START + timedelta(days=7, minutes=-1)
    assert jumps[-1] == A_WEEK_S


def test_timers_fire_in_order_at_their_times() -> None:
    loop = VirtualLoop(random.Random(3))
    fired: list[tuple[float, str]] = []

    def fire(name: str) -> None:
        fired.append((loop.time(), name))

    async def main() -> None:
        for after_s, name in ((7.5, "late"), (0.25, "early"), (3.0, "between")):
            loop.call_later(after_s, fire, name)
        await asyncio.sleep(A_WEEK_S)

    loop.run(main())
    assert fired == [(0.25, "early"), (3.0, "between"), (7.5, "late")]


def test_seed_decides_the_order_of_ready_tasks() -> None:
    plain = VirtualLoop().run(order_of_tasks(9))
    orders = {seed: VirtualLoop(random.Random(seed)).run(order_of_tasks(9)) for seed in range(5)}
    assert plain == list(range(9))
    assert len({tuple(order) for order in orders.values()}) == 5
    assert all(sorted(order) == plain for order in orders.values())
    assert VirtualLoop(random.Random(3)).run(order_of_tasks(9)) == orders[3]


def test_functions_for_threads_run_in_the_loop_thread() -> None:
    here = threading.get_ident()

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(threading.get_ident)

    assert VirtualLoop().run(main()) == here


def test_waiting_for_ever_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeft):
        VirtualLoop().run(main())


def test_tasks_are_cancelled_when_the_loop_ends() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(A_WEEK_S)
        finally:
            ended.append("cancelled")

    async def main() -> None:
        task = asyncio.create_task(stay())
        await asyncio.sleep(A_DAY_S)
        assert not task.done()

    VirtualLoop().run(main())
    assert ended == ["cancelled"]


def test_ids_follow_from_a_clock_and_a_seed() -> None:
    def drawn() -> list[str]:
        with ids_from(ManualClock(START), random.Random(5).randbytes):
            return [new_id("job_"), *new_ids("job_", 2)]

    assert drawn() == drawn()
    assert new_id("job_") != new_id("job_"), "outside the context, ids are random again"
