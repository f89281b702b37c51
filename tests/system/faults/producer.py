"""Jobs that are enqueued while faults happen, on a thread of its own.

A batch is asked for again under the same keys until its answer has come, so every job that may be
stored is known to the audit. A scenario counts jobs where it would otherwise wait for a time.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from duly.errors import BackendUnavailable
from duly.flows.client import Client
from duly.model.jobs import JobId
from tests.system.application import app
from tests.system.database import open_database
from tests.system.faults.site import Site
from tests.system.processes import LIMIT_S, POLL_S

MAX_BATCH = 500
Wanted = Callable[["Producer"], int]
"""Decides how many jobs to enqueue now."""


def at_rate(jobs_per_s: float) -> Wanted:
    """Enqueue so many jobs a second; what could not be stored in time is made up for."""

    def missing(producer: "Producer") -> int:
        return int(producer.running_s() * jobs_per_s) - len(producer.ids)

    return missing


def keep_waiting(jobs: int) -> Wanted:
    """Enqueue whenever fewer jobs than this wait: there is always more to do than anybody can."""

    def missing(producer: "Producer") -> int:
        return MAX_BATCH if producer.count_waiting() < jobs else 0

    return missing


class Producer:
    """Enqueues `steady` jobs until the end of a `with` block."""

    def __init__(
        self, site: Site, wanted: Wanted, *, handler_s: float = 0.02, **options: Any
    ) -> None:
        self.ids: list[JobId] = []
        """Jobs that are stored."""
        self._site = site
        self._wanted = wanted
        self._handler_s = handler_s
        self._options = options
        self._began_s = time.monotonic()
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(1, "producer")

    def __enter__(self) -> Self:
        self._ended = self._threads.submit(lambda: asyncio.run(self._produce()))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopping.set()
        self._threads.shutdown()
        self._site.ids += self.ids
        if kind is None:
            self._ended.result()

    def running_s(self) -> float:
        """Return for how long it has run."""
        return time.monotonic() - self._began_s

    def until_enqueued(self, jobs: int) -> None:
        """Wait until so many jobs in all have been enqueued."""
        self._site.until(
            lambda: len(self.ids) >= jobs or self._ended.done(), f"{jobs} jobs are enqueued"
        )

    def count_waiting(self) -> int:
        """Return how many jobs were enqueued and have not run; others' jobs make it too small."""
        return len(self.ids) - self.count_ends()

    def count_ends(self) -> int:
        """Return how many handlers of any job have ended."""
        return sum(line.moment == "end" for line in self._site.record.lines())

    async def _produce(self) -> None:
        store = open_database(self._site.url, connections=1)
        client = Client(store, actions=app.actions)
        try:
            while not self._stopping.is_set():
                if (jobs := min(self._wanted(self), MAX_BATCH)) > 0:
                    self.ids += await self._enqueue(client, jobs)
                self._stopping.wait(POLL_S)
        finally:
            await store.close()

    async def _enqueue(self, client: Client, jobs: int) -> list[JobId]:
        first = len(self.ids)
        keys = [f"produced-{number}" for number in range(first, first + jobs)]
        inputs = [self._handler_s] * jobs
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            try:
                made = await client.enqueue_many("work.steady", inputs, keys=keys, **self._options)
            except BackendUnavailable:
                if time.monotonic() > deadline_s:
                    raise
                self._stopping.wait(POLL_S)
            else:
                return [each.job_id for each in made]
