"""Calls of an application's non-async functions, on a thread with the caller's context."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def in_thread(threads: Executor, call: Callable[[], T]) -> T:
    """Return or raise what a call returns or raises; a running call cannot be cancelled."""
    with_context = partial(contextvars.copy_context().run, _told, call)
    return await asyncio.get_running_loop().run_in_executor(threads, with_context)


def _told(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:
        # A future accepts no StopIteration: its caller would wait for ever.
        raise RuntimeError("StopIteration was raised") from error
