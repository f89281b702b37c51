"""Workers: who they say they are, and since when nobody has heard of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duly.errors import InvalidInput
from duly.job_store import WorkerInfo
from duly.jobs import WorkerId
from duly.store import MAX_PAGE, Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import MINUTE_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case


def a_worker(name: str = "a") -> WorkerInfo:
    """A worker that says wrong times."""
    queues = ("mail", "default")
    return WorkerInfo(WorkerId(name), "host", 7, queues, 4, 1, started_at_ms=1, beat_at_ms=1)


class WorkerCases(StoreConformance):
    """beat(), list_workers(), remove_worker() and remove_silent_workers()."""

    @case
    async def test_times_of_a_worker_are_the_stores(self, store: Store, clock: ManualClock) -> None:
        await store.beat(a_worker())
        first = replace(a_worker(), started_at_ms=START_MS, beat_at_ms=START_MS)
        assert await store.list_workers() == [first]
        clock.advance(minutes=1)
        await store.beat(replace(a_worker(), running=3, is_stopping=True, queues=()))
        assert await store.list_workers() == [
            replace(
                first,
                running=3,
                is_stopping=True,
                queues=(),
                beat_at_ms=START_MS + MINUTE_MS,
            )
        ]

    @case
    async def test_workers_are_listed_by_id(self, store: Store) -> None:
        for name in "cab":
            await store.beat(a_worker(name))
        assert [each.id for each in await store.list_workers()] == ["a", "b", "c"]
        assert [each.id for each in await store.list_workers(limit=2)] == ["a", "b"]

    @case
    async def test_workers_leave(self, store: Store, clock: ManualClock) -> None:
        await store.beat(a_worker("a"))
        await store.beat(a_worker("b"))
        await store.remove_worker(WorkerId("a"))
        await store.remove_worker(WorkerId("nobody"))
        assert [each.id for each in await store.list_workers()] == ["b"]
        clock.advance(minutes=1)
        await store.beat(a_worker("a"))
        assert (await store.list_workers())[0].started_at_ms == START_MS + MINUTE_MS

    @case
    async def test_silent_workers_are_removed(self, store: Store, clock: ManualClock) -> None:
        for name in "dbca":
            await store.beat(a_worker(name))
        clock.advance(milliseconds=59_999)
        assert await store.remove_silent_workers(MINUTE_MS) == []
        await store.beat(a_worker("c"))
        clock.advance(milliseconds=1)
        assert await store.remove_silent_workers(MINUTE_MS, limit=2) == ["a", "b"]
        assert await store.remove_silent_workers(MINUTE_MS) == ["d"]
        assert [each.id for each in await store.list_workers()] == ["c"]

    @case
    async def test_pages_of_workers_have_bounds(self, store: Store) -> None:
        for limit in (0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput):
                await store.list_workers(limit)
            with pytest.raises(InvalidInput):
                await store.remove_silent_workers(1, limit)
