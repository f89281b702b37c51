"""Store completed attempts in batches.

While one batch is being stored, the next one fills; a batch that could not be stored is kept.

A handler that has returned but whose completion is not stored runs again if the process is killed.
Their number is bounded: slots wait while the next batch is full. The batch size starts small
and grows only while slots have to wait, so slow handlers have few unstored completions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from duly.model.claims import ProgressNote
from duly.model.jobs import JobId, LeasedJob
from duly.rules.outcomes import Finish
from duly.runtime.backoff import STORE_FAILURES, Backoff, Signal
from duly.stores.port import JobStore

log = logging.getLogger(__name__)

OnStored = Callable[[Sequence[Finish], Sequence[JobId]], Awaitable[None]]
"""Called with the stored completions and the ids of those that were refused."""

FIRST_BATCH = 8
MAX_BATCH = 2_000


class Completions:
    """Completions and progress notes waiting to be stored."""

    def __init__(self, store: JobStore, on_stored: OnStored, progress_s: float = 1.0) -> None:
        self._store = store
        self._progress_s = progress_s
        self._on_stored = on_stored
        self._gathering: list[Finish] = []
        self._notes: dict[JobId, ProgressNote] = {}
        self._batch_limit = FIRST_BATCH
        self._room: asyncio.Future[None] | None = None
        """Resolved when the next batch is taken; slots wait for it while that batch is full."""
        self._something = Signal()
        self._all_stored = asyncio.Event()
        self._all_stored.set()

    @property
    def _is_full(self) -> bool:
        return len(self._gathering) >= self._batch_limit

    async def until_room(self) -> None:
        """Wait until the next batch has room; slots call it after `add` returned True."""
        while self._is_full:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def add(self, finish: Finish) -> bool:
        """Add a completion to the next batch; return whether the batch is full now."""
        gathering = self._gathering
        if not gathering:
            self._all_stored.clear()
            self._something.set()
        gathering.append(finish)
        return len(gathering) >= self._batch_limit

    def note_progress(self, job: LeasedJob, text: str) -> None:
        """Keep a note; only the newest of a job is stored. May be called from any thread."""
        self._notes[job.id] = ProgressNote(job.id, job.fence, text)

    async def drain(self) -> None:
        """Wait until everything is stored."""
        await self._all_stored.wait()

    async def run(self) -> None:
        """Store completions and notes until cancelled."""
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        noted_at = loop.time()
        try:
            while True:
                await self._something.wait(self._progress_s)
                try:
                    while self._gathering:
                        await self._store_batch()
                        # A busy worker stores progress too, but never before a completion.
                        if self._notes and loop.time() - noted_at >= self._progress_s:
                            break
                    if self._notes and loop.time() - noted_at >= self._progress_s:
                        noted_at = loop.time()
                        await self._store_notes()
                    if self._gathering:
                        self._something.set()
                    else:
                        self._all_stored.set()
                    backoff.reset()
                except STORE_FAILURES as error:
                    log.warning("finish: %s", error, extra={"event": "worker.unavailable"})
                    await asyncio.sleep(backoff.next())
                    self._something.set()
        finally:
            # Nothing is stored after this, so drain() must not wait.
            self._all_stored.set()

    async def _store_batch(self) -> None:
        batch = self._take()
        if self._notes:
            batch = list(map(self._with_progress, batch))
        try:
            refused = await self._store.finish(batch)
        except BaseException:
            self._gathering[:0] = batch
            raise
        await self._on_stored(batch, refused)

    def _with_progress(self, finish: Finish) -> Finish:
        """Add the last note of a job to its completion, since a completed job accepts no notes."""
        note = self._notes.get(finish.job_id)
        if note is None or note.fence != finish.fence:
            return finish
        del self._notes[finish.job_id]
        return finish._replace(progress=note.progress)

    def _take(self) -> list[Finish]:
        """Return the next batch, release waiting slots and adapt the size of the batch after it."""
        was_full, limit = self._is_full, self._batch_limit
        # After a failure the previous batch precedes the next one: together more than a batch.
        batch, self._gathering = self._gathering[:MAX_BATCH], self._gathering[MAX_BATCH:]
        if was_full:
            self._batch_limit = min(limit * 2, MAX_BATCH)
        elif len(batch) < limit // 2:
            # Slowly: after one small batch, since the slots may just have waited for a claim.
            self._batch_limit = max(limit - limit // 8 - 1, FIRST_BATCH)
        if self._room is not None and not self._is_full:
            self._room.set_result(None)
            self._room = None
        return batch

    async def _store_notes(self) -> None:
        notes = [self._notes.pop(each) for each in list(self._notes)[:MAX_BATCH]]
        try:
            await self._store.note_progress(notes)
        except STORE_FAILURES:
            for note in notes:
                self._notes.setdefault(note.job_id, note)
            raise
