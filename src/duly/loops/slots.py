"""Station 6: one slot of a worker runs one job at a time.

Takes a leased job; gives its outcome. A handler is asked to stop by cancelling it (async) or by
its context (sync); a slot whose handler ignores that is lost until the handler returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from duly.errors import BackendUnavailable, DulyError
from duly.flows import Action
from duly.jobs import MAX_ERROR_CHARACTERS, MAX_RESULT_BYTES, LeasedJob
from duly.loops.admission import Admission
from duly.loops.job_context import Bench, Interruption, JobContext
from duly.loops.threads import in_thread
from duly.outcomes import Cancelled, Failed, Outcome, Released, Succeeded
from duly.redaction import scrub, secret_values

T = TypeVar("T")


class Abort(DulyError):
    """Raised by a handler: this job cannot succeed, trying it again is no use."""


class Slot:
    """A place where one handler runs."""

    def __init__(self, bench: Bench, admission: Admission | None = None) -> None:
        self.bench = bench
        self._admission = admission
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.Task[object] | None = None
        """The one that serves this slot, job after job."""
        self._task: asyncio.Task[object] | None = None
        """The same while a handler may be cancelled."""
        self._alarm: asyncio.TimerHandle | None = None
        self._ends_at = 0.0
        self.job: LeasedJob | None = None
        self._ended: asyncio.Future[None] | None = None
        self.context: JobContext | None = None
        self.asked_at: float | None = None
        """When the handler was asked to stop, by the loop's clock."""
        self.is_lost = False
        """Its handler ignores that it should stop; the lease is no longer renewed."""
        self.is_ending: bool | None = None
        """Whether its worker ends its task. None: it has no worker, and goes with whoever runs it.

        The task itself does not tell: a handler may have cancelled it, and not taken that back.
        """

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
        context = JobContext(job, self.bench, self.deadline)
        self.job, self.context = job, context
        self._set_alarm(job.timeout_ms / 1000)
        outcome: Outcome | None = None
        has_begun = False
        try:
            if job.schedule_id is not None:
                outcome = await self._admit(action, job, context)
            # An authorize that swallows its cancelling must not get the handler started.
            if outcome is None and context.interruption is None:
                has_begun = True
                outcome = await self._call(action, job, context)
        except BaseException as error:
            if self._is_ours(error):
                raise
            outcome = _failed(error, action, job)
        finally:
            self.job = self.context = self.asked_at = self._task = None
            self.is_lost = False
            if self._ended is not None:
                self._ended.set_result(None)
                self._ended = None
        if self.is_ending is False and self._own is not None and self._own.cancelling():
            await self._shake_off(self._own)
        why = context.interruption
        if why is not None and (context.is_told or why in ("lost", "timeout")):
            # It ended because it was asked to, or too late: the interruption is what happened.
            return _interrupted(why, job, has_begun)
        return outcome

    def _is_ours(self, error: BaseException) -> bool:
        """Whether it is meant for the slot, and not raised by what it called.

        Without an interruption a CancelledError is a handler's own: it waited for a cancelled task.
        """
        if isinstance(error, asyncio.CancelledError):
            return _is_cancelled() if self.is_ending is None else self.is_ending
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            return True
        # A test that drains wants to see what its own handlers raise to fail it.
        return self.is_ending is None and not isinstance(error, Exception | SystemExit)

    async def _shake_off(self, own: asyncio.Task[object]) -> None:
        """Take back a cancelling of this task that a handler left behind, come or still to come."""
        while own.cancelling():
            own.uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.is_ending:
                raise

    async def _admit(self, action: Action, job: LeasedJob, context: JobContext) -> Outcome | None:
        """Ask whether a schedule's job may run; if so, find what its handler may want to know."""
        admission = self._admission
        if admission is None:
            return None
        try:
            refused = await self._await(admission.denied(job), context)
            if refused is None and action.takes_context and context.interruption is None:
                context.schedule = await self._await(admission.occurrence(job), context)
        except BackendUnavailable as error:
            # Nothing has begun, so it is no try: whoever has one only must not lose it.
            return Released(f"not begun: {error}")
        return refused

    async def _call(self, action: Action, job: LeasedJob, context: JobContext) -> Outcome | None:
        arguments = action.arguments(job.input, context)
        if action.is_async:
            # As _await(), without a coroutine more for each job.
            self._task = self._own
            try:
                result = await action.function(**arguments)
            finally:
                self._calm(context)
        else:
            context.lend(asyncio.get_running_loop())
            # A thread cannot be cancelled, so the slot waits until the function returns.
            result = await in_thread(self.bench.threads, partial(action.function, **arguments))
        return _DONE if result is None else Succeeded(_encoded(result))

    async def _await(self, call: Awaitable[T], context: JobContext) -> T:
        self._task = self._own
        try:
            return await call
        finally:
            self._calm(context)

    def _calm(self, context: JobContext) -> None:
        """Whatever was called has ended: the slot goes on, also where it was asked to stop."""
        self._task = None
        if context.interruption is not None and self._own is not None:
            self._own.uncancel()

    def deadline(self) -> datetime:
        """When the time of the job that runs is up."""
        return self.bench.clock.now() + timedelta(seconds=self._ends_at - self._time())

    def _time(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _set_alarm(self, seconds: float) -> None:
        """One alarm goes from job to job: moved only when it would ring too late."""
        if self._loop is None:
            self._loop, self._own = asyncio.get_running_loop(), asyncio.current_task()
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


def _interrupted(why: Interruption, job: LeasedJob, has_begun: bool) -> Outcome | None:
    match why:
        case "timeout":
            return Failed(f"timed out after {job.timeout_ms / 1000:g} s", timed_out=True)
        case "cancel":
            return Cancelled()
        case "stop" if has_begun and job.careful and job.max_attempts == 1:
            # At most once means that nobody begins it again.
            return Failed("stopped before it ended", is_final=True)
        case "stop":
            return Released()
        case "lost":
            return None


def _is_cancelled() -> bool:
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
