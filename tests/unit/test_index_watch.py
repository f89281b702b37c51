"""Going round the schedules: what a step knows, what a round knows, and what is met in between."""

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
        # The round before stands until the next is whole.
        assert [await watch.look() for _ in range(3)] == 3 * [IndexRound(5, 0, is_whole=True)]
        assert await watch.look() == IndexRound(7, 0, is_whole=True)

    asyncio.run(check())


def test_a_missing_row_is_known_in_the_step_that_meets_it(store: MemoryStore) -> None:
    async def check() -> None:
        await written(store, *"abcd")
        watch = IndexWatch(store, step=3)
        assert [await watch.look() for _ in range(2)][-1] == IndexRound(4, 0, is_whole=True)
        for name in "abcd":
            await store.remove(ScheduleKey("crm", "user:ada", name))
        assert await watch.look() == IndexRound(4, 3, is_whole=True)
        assert await watch.look() == IndexRound(4, 4, is_whole=True)
        # And is not forgotten while the next round has not come to it.
        assert await watch.look() == IndexRound(4, 4, is_whole=True)

    asyncio.run(check())


def test_a_small_index_is_a_whole_round_in_each_step(store: MemoryStore) -> None:
    async def check() -> None:
        watch = IndexWatch(store)
        assert await watch.look() == IndexRound(0, 0, is_whole=True)
        await written(store, "a")
        assert await watch.look() == IndexRound(1, 0, is_whole=True)

    asyncio.run(check())
