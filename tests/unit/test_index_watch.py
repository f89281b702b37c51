"""Tests of the index check: results of steps and of rounds, and faults found in between."""

import asyncio

from duly import ScheduleCollection, ScheduleKey, cron, user
from duly.operate.index_watch import IndexRound, IndexWatch
from duly.stores.memory import MemoryStore


async def written(store: MemoryStore, *names: str) -> None:
    schedules = ScheduleCollection(store, "crm").of(user("ada"))
    for name in names:
        await schedules.create(name, cron("0 9 * * *"), action="send")


def test_rounds_follow_each_other(store: MemoryStore) -> None:
    async def check() -> None:
        await written(store, *"abcde")
        watch = IndexWatch(store, step=2)
        assert await watch.look() == IndexRound(2, 0, is_whole=False)
        assert await watch.look() == IndexRound(4, 0, is_whole=False)
        assert await watch.look() == IndexRound(5, 0, is_whole=True)
        await written(store, *"fg")
        # The last complete round is reported until the next one is complete.
        assert [await watch.look() for _ in range(3)] == 3 * [IndexRound(5, 0, is_whole=True)]
        assert await watch.look() == IndexRound(7, 0, is_whole=True)

    asyncio.run(check())


def test_a_missing_row_is_reported_in_the_step_that_finds_it(store: MemoryStore) -> None:
    async def check() -> None:
        await written(store, *"abcd")
        watch = IndexWatch(store, step=3)
        assert [await watch.look() for _ in range(2)][-1] == IndexRound(4, 0, is_whole=True)
        for name in "abcd":
            await store.remove(ScheduleKey("crm", "user:ada", name))
        assert await watch.look() == IndexRound(4, 3, is_whole=True)
        assert await watch.look() == IndexRound(4, 4, is_whole=True)
        # It is still reported until the next round has checked it.
        assert await watch.look() == IndexRound(4, 4, is_whole=True)

    asyncio.run(check())


def test_each_step_is_a_whole_round_on_a_small_index(store: MemoryStore) -> None:
    async def check() -> None:
        watch = IndexWatch(store)
        assert await watch.look() == IndexRound(0, 0, is_whole=True)
        await written(store, "a")
        assert await watch.look() == IndexRound(1, 0, is_whole=True)

    asyncio.run(check())
