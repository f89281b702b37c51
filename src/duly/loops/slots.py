"""Station 6: one slot of a worker runs one job at a time.

Takes a leased job; gives its outcome. A handler is asked to stop by cancelling it (async) or by
its context (sync); a slot whose handler ignores that is lost until the handler returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

import msgspec

from duly.clock import Clock
from duly.errors import DulyError, InvalidInput
from duly.flows import Action
from duly.jobs import MAX_ERROR_CHARACTERS, MAX_PROGRESS_BYTES, MAX_RESULT_BYTES, JobId, LeasedJob
from duly.outcomes import Cancelled, Failed, Outcome, Released, Succeeded
from duly.redaction import scrub, secret_values

log = logging.getLogger("duly.job")

Interruption = Literal["timeout", "cancel", "lost", "stop"]
"""Why a handler was asked to stop."""


class Abort(DulyError):
    """Raised by a handler: this job cannot succeed, trying it again is no use."""


class JobContext:
    """What a handler may know and say about the job it runs."""

    def __init__(self, job: LeasedJob, slot: Slot) -> None:
        self._job = job
        self._slot = slot
        self.interruption: Interruption | None = None
        self.is_told = False
        """Whether the handler knows that it should stop."""

    @property
    def job_id(self) -> JobId:
        """Of the job."""
        return self._job.id

    @property
    def queue(self) -> str:
        """Where it was waiting."""
        return self._job.queue

    @property
    def workspace(self) -> str:
        """Whose work it is, for fairness."""
        return self._job.workspace

    @property
    def scope(self) -> str:
        """Who it runs as."""
        return self._job.scope

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._job.attempt

    @property
    def deadline(self) -> datetime:
        """When the time for this attempt is up."""
        return self._slot.deadline()

    @property
    def cancelled(self) -> bool:
        """Whether to stop: somebody asked, the time is up, or the job is no longer ours."""
        self.is_told = self.interruption is not None
        return self.is_told

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the ids."""
        ids = {
            "job_id": self.job_id,
            "action": self._job.action,
            "queue": self.queue,
            "workspace": self.workspace,
            "attempt": self.attempt,
        }
        return logging.LoggerAdapter(log, ids)

    def progress(self, percent: float, message: str = "") -> None:
        """Keep how far it is beside the job."""
        text = msgspec.json.encode({"percent": percent, "message": message})
        if len(text) > MAX_PROGRESS_BYTES:
            raise InvalidInput(f"progress of {len(text)} bytes; allowed: {MAX_PROGRESS_BYTES}")
        self._slot.bench.note_progress(self._job, text.decode())


@dataclass(frozen=True, slots=True)
class Bench:
    """What all slots of a worker share."""

    actions: Mapping[str, Action]
    clock: Clock
    threads: Executor
    note_progress: Callable[[LeasedJob, str], None]


class Slot:
    """A place where one handler runs."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._ends_at = 0.0
        self.job: LeasedJob | None = None
        self._ended: asyncio.Future[None] | None = None
        self.context: JobContext | None = None
        self.asked_at: float | None = None
        """When the handler was asked to stop, by the loop's clock."""
        self.is_lost = False
        """Its handler ignores that it should stop; the lease is no longer renewed."""

    def interrupt(self, why: Interruption) -> None:
        """Ask the handler to stop; asking again changes nothing."""
        if self.context is None or self.context.interruption is not None:
            return
        self.context.interruption = why
        self.asked_at = self._time()
        if self._task is not None:
            self.context.is_told = True
            self._task.cancel()

    async def until_idle(self) -> None:
        """Wait until the handler that runs now has ended."""
        if self.job is not None:
            if self._ended is None:
                self._ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._ended)

    async def run(self, job: LeasedJob) -> Outcome | None:
        """Run one job to its outcome; None: it is no longer ours, so there is nothing to say."""
        action = self.bench.actions[job.action]
        context = JobContext(job, self)
        self.job, self.context = job, context
        self._set_alarm(job.timeout_ms / 1000)
        try:
            arguments = action.arguments(job.input, context)
            if action.is_async:
                result = await self._await(action.function(**arguments), context)
            else:
                result = await self._in_thread(partial(action.function, **arguments))
            outcome: Outcome | None = _DONE if result is None else Succeeded(_encoded(result))
        except asyncio.CancelledError as error:
            if _is_ending():
                raise
            # Without an interruption it is the handler's own: it waited for a cancelled task.
            outcome = _failed(error, action, job)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the outcome
            outcome = _failed(error, action, job)
        finally:
            self.job = self.context = self.asked_at = self._task = None
            self.is_lost = False
            if self._ended is not None:
                self._ended.set_result(None)
                self._ended = None
        why = context.interruption
        if why is not None and (context.is_told or why in ("lost", "timeout")):
            # It ended because it was asked to, or too late: the interruption is what happened.
            return self._interrupted(why, job)
        return outcome

    async def _await(self, call: Awaitable[object], context: JobContext) -> object:
        self._task = task = asyncio.current_task(self._loop)
        try:
            return await call
        finally:
            self._task = None
            if context.interruption is not None and task is not None:
                task.uncancel()

    async def _in_thread(self, call: Callable[[], object]) -> object:
        # A thread cannot be cancelled, so the slot waits until the function returns.
        with_context = partial(contextvars.copy_context().run, call)
        return await asyncio.get_running_loop().run_in_executor(self.bench.threads, with_context)

    def deadline(self) -> datetime:
        """When the time of the job that runs is up."""
        return self.bench.clock.now() + timedelta(seconds=self._ends_at - self._time())

    def _time(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _set_alarm(self, seconds: float) -> None:
        """One alarm goes from job to job: moved only when it would ring too late."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._ends_at = self._loop.time() + seconds
        if self._alarm is None or self._alarm.when() > self._ends_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(self._ends_at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self.job is not None and self._loop is not None:
            if self._loop.time() < self._ends_at:  # that of an earlier job
                self._alarm = self._loop.call_at(self._ends_at, self._ring)
            else:
                self.interrupt("timeout")

    def _interrupted(self, why: Interruption, job: LeasedJob) -> Outcome | None:
        match why:
            case "timeout":
                return Failed(f"timed out after {job.timeout_ms / 1000:g} s", timed_out=True)
            case "cancel":
                return Cancelled()
            case "stop":
                return Released()
            case "lost":
                return None


_DONE = Succeeded()


def _encoded(result: object) -> str:
    try:
        text = msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        # The work is done; doing it again would give another result that cannot be stored.
        raise Abort(f"the result cannot be stored as JSON: {error}") from error
    if len(text) > MAX_RESULT_BYTES:
        raise Abort(f"the result has {len(text)} bytes; allowed: {MAX_RESULT_BYTES}")
    return text.decode()


def _is_ending() -> bool:
    """Whether the slot itself is cancelled, not only its handler."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failed(error: BaseException, action: Action, job: LeasedJob) -> Failed:
    text = f"{type(error).__name__}: {_said(error)}"[: MAX_ERROR_CHARACTERS * 2]
    secrets = secret_values(job.input, action.redact)
    # A database takes neither a NUL nor half a character, and an end that it does not take would
    # hold up all ends behind it.
    text = scrub(text, secrets).replace("\0", "\\0").encode(errors="backslashreplace").decode()
    return Failed(text, is_final=isinstance(error, Abort))


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be shown
        return "(no text)"
