"""Named locks in memory: a row per name, which outlives its owners and so keeps the fence."""

from __future__ import annotations

from duly.job_store import Lock
from duly.stores.checks import check_limit, check_lock
from duly.stores.memory.tables import StoredLock, Tables


def acquire(tables: Tables, now_ms: int, name: str, owner: str, ttl_ms: int) -> Lock | None:
    """Take a lock that is free, run out or the owner's own."""
    check_lock(name, owner, ttl_ms)
    held = tables.locks.get(name, StoredLock(None, 0, 0))
    if _has(held, owner, now_ms):
        return _hold(tables, name, owner, held.fence, now_ms + ttl_ms)
    if held.owner is not None and held.until_ms > now_ms:
        return None
    return _hold(tables, name, owner, held.fence + 1, now_ms + ttl_ms)


def extend(tables: Tables, now_ms: int, name: str, owner: str, ttl_ms: int) -> Lock | None:
    """Hold a lock for longer."""
    check_lock(name, owner, ttl_ms)
    held = tables.locks.get(name)
    if held is None or not _has(held, owner, now_ms):
        return None
    return _hold(tables, name, owner, held.fence, now_ms + ttl_ms)


def release(tables: Tables, now_ms: int, name: str, owner: str) -> bool:
    """Give a lock back."""
    held = tables.locks.get(name)
    if held is None or not _has(held, owner, now_ms):
        return False
    tables.locks[name] = held._replace(owner=None)
    return True


def page(tables: Tables, now_ms: int, name: str | None, after: str, limit: int) -> list[Lock]:
    """Locks that somebody holds, by name."""
    check_limit(limit)
    return [
        Lock(each, held.owner, held.fence, held.until_ms)
        for each, held in sorted(tables.locks.items())
        if (each > after if name is None else each == name)
        and held.owner is not None
        and held.until_ms > now_ms
    ][:limit]


def _has(held: StoredLock, owner: str, now_ms: int) -> bool:
    """Whether an owner holds it; who let it run out does not, and begins anew."""
    return held.owner == owner and held.until_ms > now_ms


def _hold(tables: Tables, name: str, owner: str, fence: int, until_ms: int) -> Lock:
    tables.locks[name] = StoredLock(owner, fence, until_ms)
    return Lock(name, owner, fence, until_ms)
