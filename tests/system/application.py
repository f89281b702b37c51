"""The application of the system tests: its handlers record when they start and end.

`duly run tests.system.application:app` and other commands run it. The environment says which
database, where the record is, where the process stops (`phases`) and which bug it has (`planted`).
"""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from duly.app import Duly
from duly.dispatch import Gateway, HttpOptions, TickOptions
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.retries import RetryPolicy
from duly.runtime import Worker, WorkerOptions
from duly.stores.port import Store
from tests.system.phases import PhasedStore, phases
from tests.system.planted import BUGS
from tests.system.record import Record

SECRET = "a-secret-of-the-system-tests"  # noqa: S105 - of throwaway processes
POISONED = RetryPolicy(attempts=2, backoff="none")
TICK = TickOptions(
    max_per_tick=500, concurrency=25, first_delay_s=0.5, longest_delay_s=2, timeout_s=5, lease_s=10
)

work = Flow("work")
record = Record(Path(os.environ.get("DULY_SYSTEM_RECORD", os.devnull)))


@contextmanager
def recorded(ctx: Context) -> Iterator[None]:
    """Record the start of a handler, and its end if it is not interrupted."""
    record.note(ctx, "start")
    yield
    record.note(ctx, "end")


@work.action
async def quick(ctx: Context) -> None:
    with recorded(ctx):
        phases.reach("running")


@work.action(delivery="at_most_once")
async def once(ctx: Context) -> None:
    with recorded(ctx):
        phases.reach("running")


@work.action
async def steady(seconds: float, ctx: Context) -> None:
    with recorded(ctx):
        await asyncio.sleep(seconds)


@work.action(delivery="at_most_once")
async def once_steady(seconds: float, ctx: Context) -> None:
    with recorded(ctx):
        await asyncio.sleep(seconds)


@work.action
async def opening(seconds: float, ctx: Context) -> None:
    """Need a descriptor, as a handler that reads a file or calls somebody does."""
    with recorded(ctx):
        descriptor = os.open(os.devnull, os.O_RDONLY)
        await asyncio.sleep(seconds)
        os.close(descriptor)


@work.action(retry=POISONED)
def poison(ctx: Context) -> None:
    with recorded(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@work.action(retry=POISONED, timeout_s=0.5)
async def hang_async(ctx: Context) -> None:
    with recorded(ctx):
        await asyncio.Event().wait()


@work.action(retry=POISONED, timeout_s=0.5)
def hang_sync(ctx: Context) -> None:
    with recorded(ctx):
        threading.Event().wait()


@work.action(retry=POISONED, timeout_s=0.5)
async def block(ctx: Context) -> None:
    with recorded(ctx):
        threading.Event().wait()


class StoppingApp(Duly):
    """An application whose workers stop at the phase that the environment names."""

    def worker(self, options: WorkerOptions | None = None) -> Worker:
        """Return a worker on a store with phases, if it has to stop at one."""
        if phases.phase:
            self._opened = cast(Store, PhasedStore(self.store))
        return super().worker(options)


if planted := os.environ.get("DULY_SYSTEM_PLANTED"):
    BUGS[planted]()

connections = os.environ.get("DULY_SYSTEM_CONNECTIONS")
limits: dict[str, Any] = {} if connections is None else {"connections": int(connections)}
app = StoppingApp(
    os.environ.get("DULY_SYSTEM_URL", "memory:"),
    flows=[work],
    look_ahead_s=5,
    http=HttpOptions(gateways=[Gateway(SECRET)], tick=TICK),
    worker=WorkerOptions(stubborn_s=float(os.environ.get("DULY_SYSTEM_STUBBORN_S", "10"))),
    **limits,
)
