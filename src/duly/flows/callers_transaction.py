"""A caller's own transaction, whichever way it is held.

Takes a call that needs a plain connection or session; runs it at once, or, where the caller holds
an async one, gives an awaitable that runs it on the caller's own task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class AsyncTransaction(Protocol):
    """SQLAlchemy's AsyncConnection or AsyncSession."""

    def run_sync(self, fn: Callable[..., T], /) -> Awaitable[T]:
        """Call a function with the plain connection or session behind it."""


def join(transaction: Any, call: Callable[[Any], T]) -> T | Awaitable[T]:
    """Call with the plain transaction: now, or when the answer is awaited."""
    run_sync: Callable[[Callable[[Any], T]], Awaitable[T]] | None
    run_sync = getattr(transaction, "run_sync", None)
    return call(transaction) if run_sync is None else run_sync(call)
