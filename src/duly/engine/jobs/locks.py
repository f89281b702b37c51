"""Named locks: one item per name, which outlives its owners and so preserves the fence."""

from __future__ import annotations

from duly.engine.kinds import LOCK, StoredLock
from duly.engine.transaction import Tx
from duly.model.locks import Lock
from duly.rules.checks import check_lock


def acquire_lock(tx: Tx, name: str, owner: str, ttl_ms: int) -> Lock | None:
    """Take a lock that is free, expired or already the owner's; None: another owner holds it."""
    check_lock(name, owner, ttl_ms)
    held = tx.get(LOCK, name) or StoredLock(name, None, 0, 0)
    if _has(tx, held, owner):
        return _hold(tx, held, owner, held.fence, ttl_ms)
    if held.owner is not None and held.until_ms > tx.now_ms:
        return None
    return _hold(tx, held, owner, held.fence + 1, ttl_ms)


def extend_lock(tx: Tx, name: str, owner: str, ttl_ms: int) -> Lock | None:
    """Extend a lock; None: it is not the owner's or has expired."""
    check_lock(name, owner, ttl_ms)
    held = tx.get(LOCK, name)
    if held is None or not _has(tx, held, owner):
        return None
    return _hold(tx, held, owner, held.fence, ttl_ms)


def release_lock(tx: Tx, name: str, owner: str) -> bool:
    """Release a lock; False: it was not the owner's or had expired."""
    held = tx.get(LOCK, name)
    if held is None or not _has(tx, held, owner):
        return False
    tx.put(LOCK, held._replace(owner=None, until_ms=0, updated_at_ms=tx.now_ms))
    return True


def _has(tx: Tx, held: StoredLock, owner: str) -> bool:
    """Return whether an owner holds a lock that has not expired."""
    return held.owner == owner and held.until_ms > tx.now_ms


def _hold(tx: Tx, held: StoredLock, owner: str, fence: int, ttl_ms: int) -> Lock:
    until_ms = tx.now_ms + ttl_ms
    tx.put(LOCK, StoredLock(held.name, owner, fence, until_ms, tx.now_ms))
    return Lock(held.name, owner, fence, until_ms)
