"""Workers: heartbeats, listing, and removal of silent workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duly.errors import InvalidInput
from duly.model.index import MAX_PAGE
from duly.model.jobs import JobState, WorkerId
from duly.model.queues import Line, WaitingWork, WorkerInfo
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import a_job, bring_to, insert
from duly.testing.conformance.samples import MINUTE_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case


def a_worker(name: str = "a") -> WorkerInfo:
    """Return a worker with wrong times, which the store must replace."""
    queues = ("mail", "default")
    info = WorkerInfo(WorkerId(name), "host", 7, queues, 4, 1, actions=("crm.send",))
    return replace(info, started_at_ms=1, beat_at_ms=1)


class WorkerCases(StoreConformance):
    """Cases for beat(), list_workers(), remove_worker(), remove_silent_workers(), count_line()."""

    @case
    async def test_times_of_a_worker_are_the_stores(self, store: Store, clock: ManualClock) -> None:
        await store.beat(a_worker())
        first = replace(a_worker(), started_at_ms=START_MS, beat_at_ms=START_MS)
        assert await store.list_workers() == [first]
        clock.advance(minutes=1)
        await store.beat(replace(a_worker(), running=3, is_stopping=True, queues=(), actions=None))
        assert await store.list_workers() == [
            replace(
                first,
                running=3,
                is_stopping=True,
                queues=(),
                actions=None,
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

    @case
    async def test_lines_are_counted_by_queue_and_action(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Waiting work is counted per queue and action, queued jobs only."""
        assert await store.count_line() == Line(START_MS, [])
        for state in JobState:
            if state not in (JobState.FAILED, JobState.QUEUED):
                await bring_to(store, state, state.value, queue=f"of-{state}")
        await insert(store, *(a_job(f"m{n}", queue="mail", action="crm.send") for n in range(3)))
        clock.advance(minutes=1)
        await insert(
            store,
            a_job("m3", queue="mail", action="crm.send", delivery="at_most_once"),
            a_job("m4", queue="mail", action="crm.call"),
            a_job("d", queue="default", action="crm.send"),
        )
        later_ms = START_MS + MINUTE_MS
        wanted = [
            WaitingWork("default", "crm.send", 1, later_ms, is_capped=False),
            WaitingWork("mail", "crm.call", 1, later_ms, is_capped=False),
            WaitingWork("mail", "crm.send", 4, START_MS, is_capped=False),
        ]
        assert await store.count_line() == Line(later_ms, wanted)
        assert await store.count_line(limit=1) == Line(later_ms, wanted[:1])

    @case
    async def test_lines_are_counted_up_to_a_number(self, store: Store) -> None:
        """Only the first jobs in claim order are counted, up to the limit."""
        await insert(store, *(a_job(f"a{n}", action="crm.a", priority=2) for n in range(2)))
        await insert(store, *(a_job(f"b{n}", action="crm.b", priority=1) for n in range(2)))
        await insert(store, a_job("c", action="crm.c"))
        await insert(store, a_job("d", action="crm.d", delivery="at_most_once"))
        counted = (await store.count_line(3)).works
        assert [(each.action, each.jobs) for each in counted] == [("crm.a", 2), ("crm.b", 1)]
        assert all(each.is_capped for each in counted)
        assert not any(each.is_capped for each in (await store.count_line(7)).works)
        for bad in (0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput):
                await store.count_line(bad)
            with pytest.raises(InvalidInput):
                await store.count_line(1, bad)
