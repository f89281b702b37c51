"""The application that the faults are done to: handlers that keep a journal, and places to die.

Run by `duly run tests.system.faults.application:app`. The environment says which database, where
the journal is, and at which phase this process says so on its standard output and waits to be
killed.
"""

import asyncio
import inspect
import os
import signal
import threading
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import Engine, event

from duly.app import Duly
from duly.engine.jobs import jobs as engine_jobs
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import JobState
from duly.model.retries import RetryPolicy
from duly.rules.outcomes import Loss
from duly.runtime import Worker, WorkerOptions
from duly.stores.port import Store

PHASES = ("claimed", "running", "returned", "finishing", "finished")
"""After a claim; in a handler; before the finish; inside its transaction; after its commit."""
POISONED = RetryPolicy(attempts=2, backoff="none")

work = Flow("work")


class Journal:
    """What handlers did, a line each; a process that is killed has written what it had done."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, ctx: Context, what: str) -> None:
        os.write(self._file, f"{ctx.job_id} {ctx.attempt} {what} {os.getpid()}\n".encode())


journal = Journal(os.environ.get("DULY_FAULT_JOURNAL", os.devnull))


class Phases:
    """Where this process waits to be killed: at the given time it comes to a phase."""

    def __init__(self, phase: str, skip: int) -> None:
        self._phase = phase
        self._skip = skip

    def reach(self, phase: str) -> None:
        if phase != self._phase:
            return
        self._skip -= 1
        if self._skip < 0:
            print(phase, flush=True)
            threading.Event().wait()


phases = Phases(os.environ.get("DULY_FAULT_PHASE", ""), int(os.environ.get("DULY_FAULT_SKIP", "0")))


@work.action
async def quick(ctx: Context) -> None:
    journal.note(ctx, "start")
    phases.reach("running")
    journal.note(ctx, "end")


@work.action(delivery="at_most_once")
async def once(ctx: Context) -> None:
    journal.note(ctx, "start")
    phases.reach("running")
    journal.note(ctx, "end")


@work.action(delivery="at_most_once")
async def once_steady(seconds: float, ctx: Context) -> None:
    journal.note(ctx, "start")
    await asyncio.sleep(seconds)
    journal.note(ctx, "end")


@work.action
async def steady(seconds: float, ctx: Context) -> None:
    journal.note(ctx, "start")
    await asyncio.sleep(seconds)
    journal.note(ctx, "end")


@work.action
async def opening(seconds: float, ctx: Context) -> None:
    """Need a descriptor, as a handler that reads a file or calls somebody does."""
    journal.note(ctx, "start")
    descriptor = os.open(os.devnull, os.O_RDONLY)
    await asyncio.sleep(seconds)
    os.close(descriptor)
    journal.note(ctx, "end")


@work.action(retry=POISONED)
def poison(ctx: Context) -> None:
    journal.note(ctx, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@work.action(retry=POISONED, timeout_s=0.5)
async def hang_async(ctx: Context) -> None:
    journal.note(ctx, "start")
    await asyncio.Event().wait()


@work.action(retry=POISONED, timeout_s=0.5)
def hang_sync(ctx: Context) -> None:
    journal.note(ctx, "start")
    threading.Event().wait()


@work.action(retry=POISONED, timeout_s=0.5)
async def block(ctx: Context) -> None:
    journal.note(ctx, "start")
    threading.Event().wait()


class PhasedStore:
    """A store that stops where it is told to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        dialect = cast(Any, store)._dialect
        end_jobs = dialect.end_jobs

        def stopping(*args: Any) -> Any:
            ended = end_jobs(*args)
            phases.reach("finishing")
            return ended

        dialect.end_jobs = stopping

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("claim_jobs", "finish") or not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any) -> Any:
            if name == "finish":
                phases.reach("returned")
            answer = await found(*args)
            if name == "finish" or answer.jobs:
                phases.reach("finished" if name == "finish" else "claimed")
            return answer

        return call


class FaultyApp(Duly):
    """Duly with short patience."""

    def worker(self, options: WorkerOptions | None = None) -> Worker:
        if os.environ.get("DULY_FAULT_PHASE"):
            self._opened = cast(Store, PhasedStore(self.store))
        return super().worker(replace(options or WorkerOptions(), stubborn_s=0.5))


def forget_fences() -> None:
    """The planted bug: an end is stored whoever says it, and whenever."""

    def without_fence(
        _connection: object, _cursor: object, statement: str, values: Any, *_: object
    ) -> tuple[str, Any]:
        fenced = "AND j.fence = CASE j.state WHEN 'processing' THEN f.fence END"
        return statement.replace(fenced, ""), values

    event.listen(Engine, "before_cursor_execute", without_fence, retval=True)


def charge_losses() -> None:
    """The planted bug: a job pays for the loss of its worker, begun or not."""
    decide_loss = cast(Any, engine_jobs).decide_loss

    def charging(job: Any) -> Loss:
        loss: Loss = decide_loss(job)
        if JobState.QUEUED in loss.path and job.attempts + 1 >= job.max_attempts:
            return Loss((JobState.FAILED, JobState.DEAD), loss.start_mode, 1)
        return loss._replace(charge=1)

    cast(Any, engine_jobs).decide_loss = charging


planted = os.environ.get("DULY_FAULT_PLANTED")
if planted == "fence":
    forget_fences()
elif planted == "loss":
    charge_losses()

connections = os.environ.get("DULY_FAULT_CONNECTIONS")
options: dict[str, Any] = {} if connections is None else {"connections": int(connections)}
app = FaultyApp(os.environ.get("DULY_FAULT_URL", "memory:"), flows=[work], **options)
