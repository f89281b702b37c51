"""Calls inside a caller's own transaction, sync or async.

A call that needs a plain connection or session runs at once on a sync one; on an async one it is
returned as an awaitable that runs it on the caller's own task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class AsyncTransaction(Protocol):
    """An AsyncConnection or AsyncSession of SQLAlchemy."""

    def run_sync(self, fn: Callable[..., T], /) -> Awaitable[T]:
        """Call a function with the sync connection or session that it wraps."""


def join(transaction: Any, call: Callable[[Any], T]) -> T | Awaitable[T]:
    """Call `call` with the plain connection or session: now, or when the result is awaited."""
    run_sync: Callable[[Callable[[Any], T]], Awaitable[T]] | None
    run_sync = getattr(transaction, "run_sync", None)
    return call(transaction) if run_sync is None else run_sync(call)
