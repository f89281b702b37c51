"""One slot of a worker, which runs one job at a time to its outcome.

A handler is asked to stop by cancelling it (async) or through its context (sync); a slot whose
handler ignores that is lost until the handler returns.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from duly.errors import DulyError, InvalidInput
from duly.flows.flow import Action
from duly.model.jobs import MAX_ERROR_CHARACTERS, MAX_RESULT_BYTES, LeasedJob, StartMode
from duly.model.json_bounds import check_json_bounds
from duly.operate.redaction.values import scrub, secret_values
from duly.rules.outcomes import Cancelled, Failed, Outcome, Released, Succeeded
from duly.runtime.backoff import STORE_FAILURES
from duly.runtime.worker.admission import Admission
from duly.runtime.worker.job_context import Child, Interruption, JobContext, NoChild, SlotContext
from duly.runtime.worker.threads import in_thread

log = logging.getLogger(__name__)

T = TypeVar("T")


class Abort(DulyError):
    """Raised by a handler: this job cannot succeed and must not be retried."""


class Slot:
    """A place in a worker in which one handler runs at a time."""

    def __init__(self, slot_context: SlotContext, admission: Admission | None = None) -> None:
        self.slot_context = slot_context
        self._admission = admission
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.Task[object] | None = None
        """The task that serves this slot, job after job."""
        self._task: asyncio.Task[object] | None = None
        """The same task while a handler may be cancelled."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        """When the alarm goes off, by the loop's clock; infinite: there is none."""
        self._begun_at = self._ends_at = 0.0
        self._tell_deadline = self.deadline
        self.job: LeasedJob | None = None
        self._ended: asyncio.Future[None] | None = None
        self.context: JobContext | None = None
        self.asked_at: float | None = None
        """When the handler was asked to stop, by the loop's clock."""
        self.took_ms: int | None = None
        """Milliseconds that the last handler ran, from call to return; None: it was not called."""
        self.is_charged = False
        """Whether the attempt was counted when its start was recorded."""
        self._is_alone = False
        self.is_lost = False
        """Whether its handler ignores a request to stop; the lease is no longer renewed."""
        self.is_ending: bool | None = None
        """Whether its worker is ending its task; None: it has no worker.

        The task's own state does not show it: a handler may have cancelled it without uncancel().
        """

    def interrupt(self, why: Interruption) -> None:
        """Ask the handler to stop; further requests change nothing."""
        if self.context is None or self.context.interruption is not None:
            return
        self.context.interruption = why
        self.asked_at = self._time()
        if self._task is not None:
            self.context.is_notified = True
            self._task.cancel()

    def is_served_by(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether a task runs the handler of this slot; may be called from any thread."""
        return task is not None and task is self._own and self.job is not None

    async def until_idle(self) -> None:
        """Wait until the running handler has ended."""
        if self.job is not None:
            if self._ended is None:
                self._ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._ended)

    async def run(self, job: LeasedJob) -> Outcome | None:
        """Run one job and return its outcome; None: its lease was lost, so nothing is stored."""
        action = self.slot_context.actions[job.action]
        context = JobContext(job, self.slot_context, self._tell_deadline)
        self.job, self.context = job, context
        loop = self._loop or self._attach()
        self._begun_at = begun_at = loop.time()
        self._ends_at = ends_at = begun_at + job.timeout_ms / 1000
        if ends_at < self._alarm_at:
            self._set_alarm(loop, ends_at)
        outcome: Outcome | None = None
        has_begun = self.is_charged = False
        self.took_ms = None
        try:
            if job.careful == StartMode.ISOLATED:
                outcome = await self._await(self._run_suspect(job, context), context)
            elif job.schedule_id is not None:
                outcome = await self._admit(action, job, context)
            if job.careful and outcome is None and context.interruption is None:
                # If the slot stops waiting for a slow database, the attempt may be counted although
                # the handler was not called: one attempt fewer, and never one more.
                outcome = await self._await(self._record_start(job, context), context)
            if job.careful or job.schedule_id is not None:
                self._begun_at = loop.time()
            # An authorize that swallows its cancellation must not cause the handler to start.
            if outcome is None and context.interruption is None:
                has_begun = True
                arguments = action.arguments(job.input, context)
                if action.is_async:
                    # Like _await(), without another coroutine for each job.
                    self._task = self._own
                    try:
                        result = await action.function(**arguments)
                    finally:
                        self._end_call(context)
                else:
                    context.lend(loop)
                    # A thread cannot be cancelled: the slot waits until the function returns.
                    call = partial(action.function, **arguments)
                    result = await in_thread(self.slot_context.threads, call)
                outcome = _DONE if result is None else Succeeded(_encoded(result))
        except BaseException as error:
            if self._is_ours(error):
                raise
            outcome = _failed(error, action, job)
        finally:
            if has_begun:
                self.took_ms = int((loop.time() - self._begun_at) * 1000)
            if self._is_alone:
                self._is_alone = False
                self.slot_context.alone.release()
            self.job = self.context = self.asked_at = self._task = None
            self.is_lost = False
            if self._ended is not None:
                self._ended.set_result(None)
                self._ended = None
        if self.is_ending is False and self._own is not None and self._own.cancelling():
            await self._abandon(self._own)
        why = context.interruption
        if why is not None and (context.is_notified or why in ("lost", "timeout")):
            # It ended because it was asked to, or too late: the interruption decides the outcome.
            return _interrupted(why, job, has_begun)
        return outcome

    def _is_ours(self, error: BaseException) -> bool:
        """Return whether an error is meant for the slot, and was not raised by the handler.

        Without an interruption a CancelledError is the handler's: it awaited a cancelled task.
        """
        if isinstance(error, asyncio.CancelledError):
            return _is_cancelled() if self.is_ending is None else self.is_ending
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            return True
        # A test that drains must see the errors by which its handlers fail the test.
        return self.is_ending is None and not isinstance(error, Exception | SystemExit)

    async def _abandon(self, own: asyncio.Task[object]) -> None:
        """Undo cancellations of this task that a handler requested, delivered or still pending."""
        while own.cancelling():
            own.uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.is_ending:
                raise

    async def _admit(self, action: Action, job: LeasedJob, context: JobContext) -> Outcome | None:
        """Check that a schedule's job may run and find its occurrence; return an outcome if not."""
        admission = self._admission
        if admission is None:
            return None
        try:
            refused = await self._await(admission.denied(job), context)
            if refused is None and action.takes_context and context.interruption is None:
                context.schedule = await self._await(admission.occurrence(job), context)
        except STORE_FAILURES as error:
            # The handler was not called, so an at-most-once job keeps its only attempt.
            return Released(f"not begun: {error}")
        return refused

    async def _record_start(self, job: LeasedJob, context: JobContext) -> Outcome | None:
        """Record the start; return an outcome if the handler must not be called."""
        try:
            start = await self.slot_context.record_start(job)
        except STORE_FAILURES as error:
            return Released(f"not begun: {error}")
        match start:
            case "lost":
                context.interruption = "lost"
            case "cancel":
                return Cancelled()
            case "started":
                self.is_charged = True
        return None

    async def _run_suspect(self, job: LeasedJob, context: JobContext) -> Outcome | None:
        """Run a suspect in a child; None: run it in this process, with no other suspect."""
        # The timeout starts, and the start is recorded, when a child is free.
        self._ends_at = math.inf
        if self.slot_context.isolation is not None:
            try:
                async with self.slot_context.isolation.child() as child:
                    return await self._run_in(child, job, context)
            except NoChild as error:
                log.error(
                    "job %s killed its worker and cannot be isolated: %s",
                    job.id,
                    error,
                    extra={"event": "worker.no_child", "job_id": job.id},
                )
        await self.slot_context.alone.acquire()
        self._is_alone = True
        self._begin_time(job)
        return None

    async def _run_in(self, child: Child, job: LeasedJob, context: JobContext) -> Outcome:
        self._begin_time(job)
        outcome = await self._record_start(job, context)
        if outcome is None and context.interruption is None:
            outcome, self.took_ms = await child.run(job)
        # If the lease is lost no outcome is stored, and the handler must not be called here either.
        return outcome or Released("not begun")

    def _begin_time(self, job: LeasedJob) -> None:
        """Start the timeout of a job now."""
        loop = self._loop or self._attach()
        self._ends_at = loop.time() + job.timeout_ms / 1000
        if self._ends_at < self._alarm_at:
            self._set_alarm(loop, self._ends_at)

    async def _await(self, call: Awaitable[T], context: JobContext) -> T:
        self._task = self._own
        try:
            return await call
        finally:
            self._end_call(context)

    def _end_call(self, context: JobContext) -> None:
        """Uncancel the slot's task after a call has ended, so that an interrupted slot goes on."""
        self._task = None
        if context.interruption is not None and self._own is not None:
            self._own.uncancel()

    def deadline(self) -> datetime:
        """Return the instant at which the running job times out."""
        return self.slot_context.clock.now() + timedelta(seconds=self._ends_at - self._time())

    def _time(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _attach(self) -> asyncio.AbstractEventLoop:
        """Store and return the loop that serves this slot, and store its task."""
        self._loop, self._own = asyncio.get_running_loop(), asyncio.current_task()
        return self._loop

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        """Set the alarm of this slot, which is moved only if it would go off too late."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = loop.call_at(at, self._ring), at

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        if self.job is not None and self._loop is not None:
            if self._ends_at == math.inf:  # it waits for a child and has not started
                return
            if self._loop.time() < self._ends_at:  # the alarm was set for an earlier job
                self._set_alarm(self._loop, self._ends_at)
            else:
                self.interrupt("timeout")


_DONE = Succeeded()


def _encoded(result: object) -> str:
    try:
        check_json_bounds("the result", result, MAX_RESULT_BYTES)
        text = msgspec.json.encode(result)
    except InvalidInput as error:
        raise Abort(str(error)) from error
    except (TypeError, ValueError, RecursionError) as error:
        # The work is done; repeating it would return another result that cannot be stored.
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
        case "stop" if has_begun and job.careful == StartMode.ONCE:
            # At most once: it must not be started again.
            return Failed("stopped before it ended", is_final=True)
        case "stop":
            return Released()
        case "lost":
            return None


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failed(error: BaseException, action: Action, job: LeasedJob) -> Failed:
    text = f"{type(error).__name__}: {_log_failure(error)}"[: MAX_ERROR_CHARACTERS * 2]
    secrets = secret_values(job.input, action.redact)
    # Databases refuse NUL and lone surrogates, and a refused completion would block all completions
    # after it.
    text = scrub(text, secrets).replace("\0", "\\0").encode(errors="backslashreplace").decode()
    return Failed(text, is_final=isinstance(error, Abort))


def _log_failure(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the error's own __str__ failed
        return "(no text)"
