"""Named locks: one owner at a time, an expiry, and a fence that only increases."""

from __future__ import annotations

import asyncio

import pytest

from duly.errors import InvalidInput
from duly.model.index import MAX_PAGE
from duly.model.locks import Lock
from duly.model.stored_jobs import DAY_MS
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import START_MS
from duly.testing.conformance.suite import StoreConformance, case


class LockCases(StoreConformance):
    """Cases for acquire_lock(), extend_lock(), release_lock() and list_locks()."""

    @case
    async def test_free_lock_is_acquired(self, store: Store) -> None:
        lock = await store.acquire_lock("nightly", "ada", 5_000)
        assert lock == Lock("nightly", "ada", 1, START_MS + 5_000)

    @case
    async def test_held_lock_is_not_acquired(self, store: Store, clock: ManualClock) -> None:
        await store.acquire_lock("nightly", "ada", 5_000)
        clock.advance(milliseconds=4_999)
        assert await store.acquire_lock("nightly", "bob", 60_000) is None
        clock.advance(milliseconds=1)
        lock = await store.acquire_lock("nightly", "bob", 5_000)
        assert lock == Lock("nightly", "bob", 2, START_MS + 10_000)

    @case
    async def test_owner_acquires_again(self, store: Store, clock: ManualClock) -> None:
        await store.acquire_lock("nightly", "ada", 5_000)
        clock.advance(seconds=4)
        lock = await store.acquire_lock("nightly", "ada", 5_000)
        assert lock == Lock("nightly", "ada", 1, START_MS + 9_000)
        clock.advance(seconds=4)
        assert await store.acquire_lock("nightly", "bob", 5_000) is None

    @case
    async def test_fence_grows_with_every_owner(self, store: Store, clock: ManualClock) -> None:
        fences = []
        for owner in ("ada", "bob", "ada", "cleo"):
            lock = await store.acquire_lock("nightly", owner, 5_000)
            assert lock is not None
            fences.append(lock.fence)
            clock.advance(seconds=5)
        assert fences == [1, 2, 3, 4]

    @case
    async def test_fence_grows_after_a_release(self, store: Store) -> None:
        for fence, owner in enumerate(("ada", "bob", "bob"), start=1):
            lock = await store.acquire_lock("nightly", owner, 5_000)
            assert lock is not None
            assert lock.fence == fence
            assert await store.release_lock("nightly", owner)

    @case
    async def test_owner_who_let_it_run_out_begins_anew(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.acquire_lock("nightly", "ada", 5_000)
        clock.advance(seconds=5)
        assert not await store.release_lock("nightly", "ada")
        lock = await store.acquire_lock("nightly", "ada", 5_000)
        assert lock == Lock("nightly", "ada", 2, START_MS + 10_000)

    @case
    async def test_owner_extends(self, store: Store, clock: ManualClock) -> None:
        await store.acquire_lock("nightly", "ada", 5_000)
        clock.advance(milliseconds=4_999)
        lock = await store.extend_lock("nightly", "ada", 60_000)
        assert lock == Lock("nightly", "ada", 1, START_MS + 64_999)

    @case
    async def test_only_the_owner_extends(self, store: Store, clock: ManualClock) -> None:
        assert await store.extend_lock("nightly", "ada", 5_000) is None
        await store.acquire_lock("nightly", "ada", 5_000)
        assert await store.extend_lock("nightly", "bob", 60_000) is None
        clock.advance(seconds=5)
        assert await store.extend_lock("nightly", "ada", 5_000) is None
        assert await store.acquire_lock("nightly", "bob", 5_000) is not None

    @case
    async def test_only_the_owner_releases_a_lock(self, store: Store) -> None:
        assert not await store.release_lock("nightly", "ada")
        await store.acquire_lock("nightly", "ada", 5_000)
        assert not await store.release_lock("nightly", "bob")
        assert await store.acquire_lock("nightly", "bob", 5_000) is None
        assert await store.release_lock("nightly", "ada")
        assert not await store.release_lock("nightly", "ada")
        assert await store.extend_lock("nightly", "ada", 5_000) is None

    @case
    async def test_locks_are_apart(self, store: Store) -> None:
        for name in ("nightly", "Nightly", "hourly"):
            lock = await store.acquire_lock(name, name, 5_000)
            assert lock is not None
            assert lock.fence == 1

    @case
    async def test_one_of_many_gets_it(self, store: Store) -> None:
        owners = [f"owner-{number}" for number in range(20)]
        answers = await asyncio.gather(
            *(store.acquire_lock("nightly", owner, 5_000) for owner in owners)
        )
        assert sum(each is not None for each in answers) == 1

    @case
    async def test_held_locks_are_listed_by_name(self, store: Store, clock: ManualClock) -> None:
        assert await store.list_locks() == []
        for name, ttl_ms in (("c", 5_000), ("a", 9_000), ("b", 9_000), ("d", 9_000), ("B", 9_000)):
            await store.acquire_lock(name, f"owner of {name}", ttl_ms)
        await store.release_lock("b", "owner of b")
        clock.advance(milliseconds=4_999)
        assert [each.name for each in await store.list_locks()] == ["B", "a", "c", "d"]
        clock.advance(milliseconds=1)
        assert await store.list_locks() == [
            Lock("B", "owner of B", 1, START_MS + 9_000),
            Lock("a", "owner of a", 1, START_MS + 9_000),
            Lock("d", "owner of d", 1, START_MS + 9_000),
        ]
        assert [each.name for each in await store.list_locks(limit=1)] == ["B"]
        assert [each.name for each in await store.list_locks(after="B", limit=1)] == ["a"]
        assert await store.list_locks(after="d") == []
        assert [each.owner for each in await store.list_locks("a")] == ["owner of a"]
        for free in ("b", "c", "nobody's"):
            assert await store.list_locks(free) == []
        for limit in (0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput, match="limit"):
                await store.list_locks(limit=limit)

    @case
    async def test_bad_locks_are_refused(self, store: Store) -> None:
        for ttl_ms in (0, -1, DAY_MS + 1):
            with pytest.raises(InvalidInput):
                await store.acquire_lock("nightly", "ada", ttl_ms)
            with pytest.raises(InvalidInput):
                await store.extend_lock("nightly", "ada", ttl_ms)
        for name, owner in (("", "ada"), ("nightly", ""), ("x" * 256, "ada")):
            with pytest.raises(InvalidInput):
                await store.acquire_lock(name, owner, 1)
        assert await store.acquire_lock("nightly", "ada", DAY_MS) is not None
