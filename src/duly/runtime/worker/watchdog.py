"""A thread that notices when a handler blocks the event loop.

While the loop is blocked the process renews no lease and runs no other job. The watchdog names the
job and where it blocks; after a set time it stores the attempt as failed, marks the job as a
suspect, and ends the process, so that a supervisor starts a new one (ADR 0027).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from duly.model.jobs import LeasedJob

log = logging.getLogger(__name__)

EXIT_STATUS = 70
_PING_S = 1.0
_STORE_S = 5.0
"""Seconds that storing the failed attempt may take."""

FindBlocker = Callable[["asyncio.Task[Any] | None"], LeasedJob | None]
"""Returns the job whose handler a task runs."""
StoreFailure = Callable[[LeasedJob, str], Coroutine[Any, Any, object]]
"""Stores that a job's attempt failed, and that the job is a suspect."""


def end_process() -> NoReturn:
    """End the process at once: nothing can be cleaned up while the loop is blocked."""
    os._exit(EXIT_STATUS)


class Watchdog:
    """A thread that watches one event loop until it is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_s: float,
        find_blocker: FindBlocker,
        store_failure: StoreFailure,
        end: Callable[[], None] = end_process,
    ) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._warn_s = min(5.0, limit_s / 2)
        self._limit_s = limit_s
        self._find_blocker = find_blocker
        self._store_failure = store_failure
        self._end = end
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="duly-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(min(_PING_S, self._warn_s)):
            answered = threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop is closed
                return
            if answered.wait(self._warn_s) or self._closed.is_set():
                continue
            job = self._tell()
            is_back = answered.wait(self._limit_s - self._warn_s)
            if self._closed.is_set():
                return
            if is_back:
                log.warning("the event loop runs again", extra={"event": "worker.unblocked"})
            elif job is not None:
                self._give_up(job)
                return

    def _tell(self) -> LeasedJob | None:
        """Log which job blocks the loop, and where; return the job."""
        job = self._find_blocker(asyncio.current_task(self._loop))
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - there is no other way
        where = "".join(traceback.format_stack(frame)[-8:]).rstrip() if frame else "unknown"
        log.error(
            "%s blocks the event loop for over %g s: no lease is renewed and no other job runs "
            "here. Use `await`, or a handler that is not async:\n%s",
            "other code" if job is None else f"job {job.id} ({job.action})",
            self._warn_s,
            where,
            extra={"event": "worker.blocked", "job_id": None if job is None else job.id},
        )
        return job

    def _give_up(self, job: LeasedJob) -> None:
        why = f"blocked the event loop of its worker for over {self._limit_s:g} s"
        log.critical(
            "job %s %s; the process ends",
            job.id,
            why,
            extra={"event": "worker.blocked_exit", "job_id": job.id},
        )
        try:
            asyncio.run(asyncio.wait_for(self._store_failure(job, why), _STORE_S))
        except Exception as error:  # noqa: BLE001 - the process ends whatever happens
            log.error("finish: %s", error, extra={"event": "worker.unavailable"})
        self._end()
