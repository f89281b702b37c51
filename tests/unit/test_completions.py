"""Tests of completions: batches grow only while slots wait, and few are ever unstored."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from duly.errors import BackendUnavailable
from duly.model.jobs import JobId, JobState
from duly.rules.outcomes import Finish
from duly.runtime.worker.completions import FIRST_BATCH, MAX_BATCH, Completions
from duly.stores.port import JobStore


class SlowStore:
    """A store that stores a batch only when the test answers it."""

    def __init__(self) -> None:
        self.batches: list[list[Finish]] = []
        self.failures = 0
        self.stored = asyncio.Semaphore(0)
        self._asked = asyncio.Semaphore(0)
        self._answer = asyncio.Semaphore(0)

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        self._asked.release()
        await self._answer.acquire()
        if self.failures:
            self.failures -= 1
            raise BackendUnavailable("not now")
        self.batches.append(list(finishes))
        self.stored.release()
        return []

    async def answer(self) -> None:
        """Wait for a batch and answer it."""
        await self._asked.acquire()
        self._answer.release()


def finish(number: int) -> Finish:
    return Finish(JobId(f"job-{number}"), 1, JobState.SUCCEEDED, "succeeded", 1)


async def _ignore(*_: Any) -> None:
    """Do nothing after a completion."""


class Slots:
    """Slots whose handlers return at once."""

    def __init__(self, completions: Completions, jobs: int) -> None:
        self._completions = completions
        self._left = iter(range(jobs))
        self.returned = 0

    async def serve(self) -> None:
        for number in self._left:
            self.returned += 1
            if self._completions.add(finish(number)):
                await self._completions.until_room()


async def _drain(store: SlowStore, jobs: int, slots: int = 4) -> tuple[list[int], list[int]]:
    """Run jobs. Return the batch sizes, and the most unstored completions at each batch."""
    completions = Completions(cast(JobStore, store), _ignore)
    running = Slots(completions, jobs)
    storing = asyncio.create_task(completions.run())
    serving = [asyncio.create_task(running.serve()) for _ in range(slots)]
    unstored: list[int] = []
    while sum(map(len, store.batches)) < jobs:
        stored = sum(map(len, store.batches))
        await store.answer()
        unstored.append(running.returned - stored)
        await store.stored.acquire()
    await completions.drain()
    storing.cancel()
    await asyncio.wait([storing, *serving])
    return list(map(len, store.batches)), unstored


def test_batches_start_small_and_grow() -> None:
    sizes, unstored = asyncio.run(_drain(SlowStore(), 20_000))
    assert sum(sizes) == 20_000
    assert sizes[0] <= FIRST_BATCH + 4
    assert max(sizes) > MAX_BATCH / 2
    # One batch is being stored and one is filling; each slot may add one more to each.
    assert max(unstored) <= 2 * (MAX_BATCH + 4)
    assert sum(unstored[:3]) < 100


def test_nothing_is_lost_when_the_store_fails() -> None:
    async def play() -> list[list[Finish]]:
        store = SlowStore()
        store.failures = 2
        completions = Completions(cast(JobStore, store), _ignore)
        storing = asyncio.create_task(completions.run())
        slots = Slots(completions, 30)
        serving = asyncio.create_task(slots.serve())
        for _ in range(2):
            await store.answer()
        while not serving.done():
            await store.answer()
            await asyncio.sleep(0)
        storing.cancel()
        await asyncio.wait([storing])
        return store.batches

    batches = asyncio.run(play())
    ids = [each.job_id for batch in batches for each in batch]
    assert len(ids) == len(set(ids))
    assert ids == sorted(ids, key=lambda each: int(each.removeprefix("job-")))


@pytest.mark.planted("completions")
def test_an_unbounded_batch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Completions, "add", lambda self, each: self._gathering.append(each))

    async def play() -> int:
        completions = Completions(cast(JobStore, SlowStore()), _ignore)
        slots = Slots(completions, 20_000)
        await slots.serve()
        return slots.returned

    assert asyncio.run(play()) > 2 * (MAX_BATCH + 4)
