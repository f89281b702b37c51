"""Record starts before handlers are called, many in one transaction.

For jobs whose start has to be known after a crash (ADR 0027). While one batch is being stored the
next one fills, so a slot waits for one or two transactions and never for a timer.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from duly.model.jobs import LeasedJob, WorkerId
from duly.stores.port import JobStore

Start = Literal["started", "lost", "cancel"]
"""`started`: the handler may be called; `lost`: the lease is; `cancel`: the job was cancelled."""


class Starts:
    """Starts waiting to be stored."""

    def __init__(self, store: JobStore, worker: WorkerId) -> None:
        self._store = store
        self._worker = worker
        self._gathering: dict[LeasedJob, asyncio.Future[Start]] = {}
        self._storing: asyncio.Task[None] | None = None

    async def record(self, job: LeasedJob) -> Start:
        """Record the start of a job; errors of the store are raised."""
        asked: asyncio.Future[Start] = asyncio.get_running_loop().create_future()
        self._gathering[job] = asked
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_all())
        # Not cancelled with its slot: the rest of the batch waits for the same transaction.
        return await asyncio.shield(asked)

    async def _store_all(self) -> None:
        try:
            while self._gathering:
                batch, self._gathering = self._gathering, {}
                await self._store_batch(batch)
        finally:
            self._storing = None

    async def _store_batch(self, batch: dict[LeasedJob, asyncio.Future[Start]]) -> None:
        try:
            found = await self._store.start_jobs(
                self._worker, [(job.id, job.fence) for job in batch]
            )
        except Exception as error:  # noqa: BLE001 - passed to the waiting slots
            for asked in batch.values():
                if not asked.cancelled():
                    asked.set_exception(error)
                    asked.exception()  # marks it as retrieved if the slot is gone
            return
        lost, cancel = set(found.lost), set(found.cancel)
        for job, asked in batch.items():
            if not asked.cancelled():
                asked.set_result(
                    "lost" if job.id in lost else "cancel" if job.id in cancel else "started"
                )
