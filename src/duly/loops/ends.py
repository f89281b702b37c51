"""Storing how attempts ended, many at a time.

While one batch is on its way the next one gathers, so that no job waits for a timer and a busy
worker still writes in bulk. What the database did not take is kept and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from duly.errors import BackendUnavailable
from duly.job_store import JobStore
from duly.jobs import JobId, LeasedJob
from duly.loops.patience import Backoff, Signal
from duly.outcomes import Finish

log = logging.getLogger(__name__)

OnEnded = Callable[[Sequence[Finish], Sequence[JobId]], Awaitable[None]]
"""Called with what was sent and the ids that were refused."""

_MOST = 1_000


class Ends:
    """Finishes and progress notes on their way to the store."""

    def __init__(self, store: JobStore, on_ended: OnEnded, progress_s: float = 1.0) -> None:
        self._store = store
        self._progress_s = progress_s
        self._on_ended = on_ended
        self._finishes: list[Finish] = []
        self._notes: dict[JobId, tuple[int, str]] = {}
        self._something = Signal()
        self._nothing = asyncio.Event()
        self._nothing.set()

    def add(self, finish: Finish) -> None:
        """Take an end; it is stored soon."""
        if not self._finishes:
            self._nothing.clear()
            self._something.set()
        self._finishes.append(finish)

    def note_progress(self, job: LeasedJob, text: str) -> None:
        """Take a note; only the newest of a job is stored. May be called from any thread."""
        self._notes[job.id] = (job.fence, text)

    async def drain(self) -> None:
        """Wait until everything is stored."""
        await self._nothing.wait()

    async def run(self) -> None:
        """Store what comes, until cancelled."""
        backoff = Backoff()
        try:
            while True:
                await self._something.wait(self._progress_s)
                try:
                    await self._store_notes()
                    await self._store_finishes()
                    backoff.reset()
                except BackendUnavailable as error:
                    log.warning("finish: %s", error, extra={"event": "worker.unavailable"})
                    await asyncio.sleep(backoff.next())
                    self._something.set()
        finally:
            self._nothing.set()  # Nobody stores anything from here on, so nobody should wait.

    async def _store_finishes(self) -> None:
        while self._finishes:
            await self._store_notes()  # an ended job takes no more
            batch = self._finishes[:_MOST]
            refused = await self._store.finish(batch)
            del self._finishes[: len(batch)]
            await self._on_ended(batch, refused)
        self._nothing.set()

    async def _store_notes(self) -> None:
        while self._notes:
            job_id, (fence, text) = self._notes.popitem()
            await self._store.note_progress(job_id, fence, text)
