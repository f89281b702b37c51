"""Tests of random walks over the job verbs: sound in memory, and the same in every store.

The memory store is the model. The relational stores take the same steps on the same clock. Every
answer must be the same; at intervals, all stored data is compared.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.model.jobs import JobId
from duly.rules.outcomes import Finish
from duly.stores import MemoryStore, open_store
from duly.stores.port import Store
from duly.stores.sql.options import SqlOptions
from duly.testing import ManualClock
from tests.property.derived_rows import check_derived_rows
from tests.property.job_walk import JobWalk, check_sound, dump
from tests.property.strategies import DEPTH

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
STEPS = 1_500
DUMP_EVERY = 50


async def walk_in_memory(seed: int, steps: int) -> Counter[str]:
    """Walk, and check every ten steps. Return the number of steps by name, and of events."""
    clock = ManualClock(START)
    store = MemoryStore(clock)
    walk, taken = JobWalk(seed, clock), Counter[str]()
    for number in range(steps):
        name, step = walk.next()
        answer = await step(store)
        walk.learn(answer)
        taken[name] += 1
        if number % 10 == 0:
            taken["events"] = max(taken["events"], await check_sound(store))
    await check_sound(store)
    return taken


async def walk_together(clock: ManualClock, store: Store, seed: int, steps: int = STEPS) -> None:
    """Walk in memory and in another store, and compare."""
    model = MemoryStore(clock)
    walk = JobWalk(seed, clock)
    for number in range(steps):
        name, step = walk.next()
        expected, answer = await step(model), await step(store)
        assert walk.match(store, answer, expected) == expected, (
            f"seed {seed}, step {number}: {name}"
        )
        walk.learn(expected)
        if number % DUMP_EVERY == 0 or number == steps - 1:
            assert await dump(store) == await dump(model), f"seed {seed}, step {number}: {name}"
            check_derived_rows(store)


async def walk_with(url: str, seed: int, *, fast_paths: bool = True) -> None:
    clock = ManualClock(START)
    options = SqlOptions(fast_paths=fast_paths, synchronous="NORMAL")
    store = open_store(url, clock=clock, options=options)
    try:
        await walk_together(clock, store, seed)
    finally:
        await store.close()


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_walk_is_sound(seed: int) -> None:
    taken = asyncio.run(walk_in_memory(seed, 2_000))
    assert min(taken.values()) > 10, "each verb must be called often enough"
    assert taken["events"] > 200


class ForgetsFences(MemoryStore):
    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        fences = {job.id: job.fence for job, _ in self._tables.jobs.values()}
        known = [each._replace(fence=fences.get(each.job_id, 0)) for each in finishes]
        return await super().finish(known)


class CancelsWhatWasLost(MemoryStore):
    async def release_expired(self, limit: int = 1_000) -> int:
        before = dict(self._tables.jobs)
        count = await super().release_expired(limit)
        for job_id, stored in before.items():
            if stored.job.state != self._tables.jobs[job_id].job.state:
                await self.cancel_job(job_id)
        return count


@pytest.mark.planted("walks")
@pytest.mark.parametrize("broken", [ForgetsFences, CancelsWhatWasLost])
def test_walk_notices_a_difference(broken: type[MemoryStore]) -> None:
    clock = ManualClock(START)
    with pytest.raises(AssertionError, match="step"):
        asyncio.run(walk_together(clock, broken(clock), seed=1))


def test_walk_is_reproducible() -> None:
    clock = ManualClock(START)
    asyncio.run(walk_together(clock, MemoryStore(clock), seed=2))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(11, 11 + DEPTH))
def test_sqlite_walks_with_the_model(tmp_path: Path, seed: int) -> None:
    asyncio.run(walk_with(f"sqlite:///{tmp_path}/walk.db", seed))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(11, 11 + DEPTH))
def test_postgresql_walks_with_the_model(postgres_url: str, seed: int) -> None:
    asyncio.run(walk_with(postgres_url, seed))


@pytest.mark.extended
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize("seed", range(21, 21 + DEPTH))
def test_the_engine_alone_walks_with_the_model(
    tmp_path: Path, request: pytest.FixtureRequest, backend: str, seed: int
) -> None:
    url = f"sqlite:///{tmp_path}/walk.db"
    if backend == "postgresql":
        url = request.getfixturevalue("postgres_url")
    asyncio.run(walk_with(url, seed, fast_paths=False))
