"""Starts, watches and stops workers in a test, with signals instead of sleeps."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, cast

from duly.app import Duly
from duly.clock import Clock
from duly.errors import BackendUnavailable
from duly.flows.flow import Flow
from duly.model.jobs import FINAL, Job, JobId, JobState
from duly.runtime import Worker, WorkerOptions
from duly.stores.port import Store

P = ParamSpec("P")
LIMIT_S = 15.0
"""Longer than any of these tests takes, and shorter than a poll that should not be needed."""
Step = Callable[..., Awaitable[None]]


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test, for at most `LIMIT_S`."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(LIMIT_S):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run


class Watched:
    """A store whose calls are recorded and can be delayed and awaited."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[tuple[str, tuple[Any, ...], Any]] = []
        """Verb, arguments and answer of each call, in the order of the answers."""
        self.before: dict[str, Step] = {}
        """Per verb, awaited with the arguments before the call."""
        self.after: dict[str, Step] = {}
        """Per verb, awaited with the answer before it is returned."""
        self._changed = asyncio.Condition()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name in self.before:
                await self.before[name](*args)
            answer = await found(*args, **kwargs)
            self.calls.append((name, args, answer))
            if name in self.after:
                await self.after[name](answer)
            async with self._changed:
                self._changed.notify_all()
            return answer

        return call

    def fail(self, verb: str, times: int = 1) -> None:
        """Make a verb raise BackendUnavailable the given number of times."""
        left = [BackendUnavailable("planted")] * times

        async def fail(*_: object) -> None:
            if left:
                raise left.pop()

        self.before[verb] = fail

    def count(self, verb: str) -> int:
        """Return how often a verb has answered."""
        return sum(name == verb for name, _, _ in self.calls)

    async def until(self, verb: str, times: int = 1) -> None:
        """Wait until a verb has answered `times` more times."""
        wanted = self.count(verb) + times
        async with self._changed:
            await self._changed.wait_for(lambda: self.count(verb) >= wanted)

    async def ended(self, *ids: JobId, states: Collection[JobState] = FINAL) -> list[Job]:
        """Wait until all jobs are in one of the states; return them."""
        async with self._changed:
            while True:
                jobs = [await self.store.get_job(job_id) for job_id in ids]
                found = [job for job in jobs if job is not None and job.state in states]
                if len(found) == len(ids):
                    return found
                await self._changed.wait()


def open_app(
    url: str, *flows: Flow, clock: Clock | None = None, look_ahead_s: float = 60
) -> tuple[Duly, Watched]:
    """Return an application and its watched store."""
    app = Duly(url, flows=flows, clock=clock, look_ahead_s=look_ahead_s)
    watched = Watched(app.store)
    app._opened = cast(Store, watched)
    return app, watched


@asynccontextmanager
async def working(app: Duly, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker during the block; raise whatever it raises."""
    worker = app.worker(WorkerOptions(**{"slots": 2, "drain_s": 5, "stubborn_s": 1, **options}))
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task


async def enqueue(app: Duly, action: Any, inputs: Iterable[object], **options: Any) -> list[JobId]:
    """Enqueue a job per input; return the ids."""
    answers = await app.client.enqueue_many(action, inputs, **options)
    return [answer.job_id for answer in answers]


async def path(store: Any, job_id: JobId) -> list[str]:
    """Return the states a job went through."""
    return [event.state.value for event in await store.job_events(job_id)]
