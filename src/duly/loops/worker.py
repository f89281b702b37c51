"""Station 6: the worker.

Claims jobs ahead into a small buffer, runs them in slots that refill one by one, stores ends in
batches, and renews leases beside all that. Nothing here waits for a handler but its own slot.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from duly.clock import Clock, SystemClock
from duly.context import Calls
from duly.errors import BackendUnavailable, DulyError, InvalidInput
from duly.flows import Action
from duly.ids import new_id
from duly.job_store import ClaimRequest, Claims, JobStore, WorkerInfo
from duly.jobs import DEFAULT_QUEUE, JobId, JobState, LeasedJob, WorkerId, check_queues
from duly.loops import attempt_log
from duly.loops.admission import Admission
from duly.loops.buffer import Buffer
from duly.loops.caution import Caution
from duly.loops.consequences import Consequences
from duly.loops.ends import Ends
from duly.loops.job_context import Bench, Interruption
from duly.loops.leases import Leases, Note
from duly.loops.patience import Backoff, Signal, in_loop
from duly.loops.slots import Slot
from duly.outcomes import Cancelled, Finish, Outcome, Released, decide
from duly.raised import traceback_of

log = logging.getLogger(__name__)

OnDead = Callable[[JobId, str], None]
_SOONEST_MS = 20
"""Jobs that come due within so short a time are claimed together, not one by one."""
_ENDING_S = 2.0
"""How long the parts of a worker may take to notice that it ends."""


class WorkerStuck(DulyError):
    """Every slot is held by a handler that ignores that its time is up."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works."""

    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    """Served in turn; priority orders inside a queue."""
    slots: int = 16
    """Handlers that run at once."""
    buffer: int = 2_000
    """Most jobs claimed ahead of free slots."""
    ahead_s: float = 0.5
    """How much work, at its own pace, a worker claims ahead: little, so that others get some."""
    lease_s: float = 30.0
    """How long a job is the worker's without renewal; renewed at a third of it."""
    fair: bool = False
    """Serve the least recently served (queue, workspace) pair first."""
    token_batch: int = 10
    """Fair workers: jobs taken under one token."""
    token_lease_s: float = 10.0
    """Fair workers: how long a token is the worker's without renewal."""
    poll_s: float = 5.0
    """How long an idle worker waits for a notice before it looks by itself."""
    quick_poll_s: float = 0.5
    """The same where the backend sends no notices."""
    careful_s: float = 0.5
    """How often a busy worker keeps a slot free for a job that may not wait in a buffer."""
    heartbeat_s: float = 10.0
    """How often a worker says that it lives."""
    progress_s: float = 1.0
    """How often progress is stored while nothing else is."""
    drain_s: float = 30.0
    """How long running handlers may take to end when the worker stops."""
    stubborn_s: float = 10.0
    """How long a handler that was asked to stop may hold its slot before the slot is lost."""
    on_dead: OnDead | None = None
    """Called with a job that this worker gave up, and its last error."""

    def __post_init__(self) -> None:
        check_queues(self.queues)
        for name, most in (("slots", 1_000), ("buffer", 4_000), ("token_batch", 1_000)):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: 1 to {most}")
        for name in ("lease_s", "token_lease_s", "poll_s", "quick_poll_s", "heartbeat_s"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: more than 0")


class Worker:
    """The loop. `run()` ends after `stop()`, when every job is ended or given back."""

    def __init__(
        self,
        store: JobStore,
        actions: Mapping[str, Action],
        options: WorkerOptions | None = None,
        *,
        clock: Clock | None = None,
        notifies: bool = False,
        calls: Calls | None = None,
    ) -> None:
        self.id = WorkerId(new_id("worker_"))
        self.options = WorkerOptions() if options is None else options
        self._store = store
        self._actions = tuple(sorted(actions))
        self._poll_s = self.options.poll_s if notifies else self.options.quick_poll_s
        self._threads = ThreadPoolExecutor(self.options.slots, "duly-handler")
        self._ends = Ends(store, self._on_ended, self.options.progress_s)
        self._leases = Leases(
            store,
            self.id,
            self.options.lease_s,
            self.options.token_lease_s,
            fair=self.options.fair,
        )
        self._consequences = None if calls is None else Consequences(calls)
        bench = Bench(
            actions,
            clock or SystemClock(),
            self._threads,
            self._ends.note_progress,
            calls,
            None if self._consequences is None else self._consequences.ask_interval,
        )
        admission = None if calls is None else Admission(calls, self._threads)
        self._slots = [Slot(bench, admission) for _ in range(self.options.slots)]
        for slot in self._slots:
            slot.is_ending = False
        self._wake = Signal()
        self._buffer = Buffer(self.options.buffer, self.options.ahead_s, self._wake.set)
        self._caution = Caution(self.options.slots)
        self._look_at_leases = Signal()
        self._leaving = Signal()
        self._hurried = Signal()
        self._is_stopping = False
        self._is_told = False
        """Whether attempts are logged: asked with each claim, not with each job."""
        self._turns = 0

    def count_with(self, note: Note) -> None:
        """Let somebody count what should not happen."""
        self._leases.note = note

    def stop(self) -> None:
        """Claim nothing more; let handlers end for a while, then give the rest back."""
        self._is_stopping = True
        self._wake.set()

    def hurry(self) -> None:
        """Let handlers end no longer, once stopped: ask them to."""
        self._hurried.set()

    async def run(self) -> None:
        """Work until stopped; raises WorkerStuck when handlers hold every slot, or outlive it."""
        loop = asyncio.get_running_loop()
        end_listening = self._store.listen(in_loop(loop, self._on_hint))
        feeding = asyncio.create_task(self._feed())
        beside = [
            asyncio.create_task(each)
            for each in (
                *map(self._serve, self._slots),
                self._ends.run(),
                self._renew_leases(),
                *([] if self._consequences is None else [self._consequences.run()]),
            )
        ]
        beating = asyncio.create_task(self._beat())
        parts = (feeding, beating, *beside)
        stubborn = 0
        broken = False
        try:
            # Only feeding ends by itself; where another part ends, that is its error.
            ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            broken = any(part.cancelled() for part in ended)
        finally:
            self.stop()
            try:
                # A claim under way is waited for: what it takes must be given back.
                await asyncio.wait([feeding], timeout=_ENDING_S)
                end_listening()
                stubborn = await self._drain()
                self._leaving.set()
                await asyncio.wait([beating], timeout=_ENDING_S)
            finally:
                for slot in self._slots:
                    slot.is_ending = True
                await _end_parts(parts)
                self._threads.shutdown(wait=False)
        for part in parts:
            if part.done() and not part.cancelled():
                part.result()
        if broken:
            raise WorkerStuck(f"worker {self.id}: a part of it was cancelled from within")
        if stubborn:
            raise WorkerStuck(f"worker {self.id}: handlers of {stubborn} jobs did not stop")

    def _on_hint(self, hint: str) -> None:
        kind, _, name = hint.partition(":")
        if kind == "queue" and (name == "*" or name in self.options.queues):
            self._wake.set()
        elif kind == "cancel" and name in self._leases:
            self._look_at_leases.set()

    async def _feed(self) -> None:
        """Claim while there is room and something to claim; else sleep until there may be."""
        loop = asyncio.get_running_loop()
        failures, idle_polls = Backoff(), Backoff(0.02, self._poll_s)
        asked_at = kept_free_at = loop.time()
        while not self._is_stopping:
            self._give_up_stubborn()
            if loop.time() - kept_free_at > self.options.careful_s:
                self._buffer.keep_free()
                kept_free_at = loop.time()
            if not self._buffer.is_wanting:
                await self._wake.wait(self.options.careful_s)
                continue
            self._buffer.measure(loop.time() - asked_at)
            asked_at = loop.time()
            try:
                claims = await self._store.claim_jobs(self._request())
            except BackendUnavailable as error:
                log.warning("claim: %s", error, extra={"event": "worker.unavailable"})
                await self._wake.wait(failures.next())
                continue
            failures.reset()
            self._is_told = attempt_log.is_told()
            self._leases.add(claims)
            self._caution.learn(claims.jobs)
            self._buffer.take(claims.jobs)
            if claims.jobs:
                idle_polls.reset()
            else:
                await self._wake.wait(_pause_s(claims, idle_polls))

    def _request(self) -> ClaimRequest:
        options = self.options
        self._turns += 1
        first = self._turns % len(options.queues)
        room = self._buffer.room
        return ClaimRequest(
            worker=self.id,
            queues=options.queues[first:] + options.queues[:first],
            limit=room,
            careful_limit=min(self._buffer.free_slots, self._caution.limit(self._leases)),
            lease_ms=int(options.lease_s * 1000),
            actions=self._actions,
            fair=options.fair,
            tokens=max(1, -(-room // options.token_batch)),
            token_batch=options.token_batch,
            token_lease_ms=int(options.token_lease_s * 1000),
        )

    async def _serve(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        while True:
            job = self._buffer.pop() or await self._buffer.next()
            begun_at = loop.time() if self._is_told else 0.0
            outcome = await slot.run(job)
            if begun_at:
                attempt_log.tell(job, outcome, loop.time() - begun_at, slot.bench.clock)
            if outcome is None:
                self._leases.drop([(job.id, job.fence)])
                if self._consequences is not None:
                    self._consequences.forget(job.id)
            else:
                self._end(job, outcome)

    def _end(self, job: LeasedJob, outcome: Outcome) -> None:
        self._ends.add(decide(job, outcome, random.random()))  # noqa: S311 - spreads retries

    async def _on_ended(self, finishes: Sequence[Finish], refused: Sequence[JobId]) -> None:
        self._leases.drop((each.job_id, each.fence) for each in finishes)
        if self._caution.ends_with(finishes):
            self._wake.set()
        await self._leases.give_back()
        for job_id in refused:
            about = {"event": "job.refused", "job_id": job_id}
            log.warning("job %s was no longer ours", job_id, extra=about)
        for each in finishes:
            if each.state is JobState.DEAD and each.job_id not in refused:
                self._tell_dead(each)
        if self._consequences is not None:
            self._consequences.ended(finishes, refused)

    def _tell_dead(self, end: Finish) -> None:
        about = {"event": "job.dead", "job_id": end.job_id}
        log.error("job %s is dead: %s", end.job_id, end.error, extra=about)
        if self.options.on_dead is not None:
            try:
                self.options.on_dead(end.job_id, end.error or "")
            except Exception as error:  # noqa: BLE001 - the application's own
                told = traceback_of(error)
                log.error("on_dead failed: %s", told, extra={"event": "job.on_dead_failed"})

    async def _renew_leases(self) -> None:
        while True:
            await self._look_at_leases.wait(self._leases.period_s)
            try:
                renewed = await self._leases.renew()
            except BackendUnavailable as error:
                log.warning("renew: %s", error, extra={"event": "worker.unavailable"})
                await asyncio.sleep(min(1.0, self._leases.period_s))
                self._look_at_leases.set()
                continue
            for job_id in renewed.lost:
                self._interrupt(job_id, "lost")
            for job_id in renewed.cancel:
                self._interrupt(job_id, "cancel")
            await self._leases.give_back()

    def _interrupt(self, job_id: JobId, why: Interruption) -> None:
        waiting = self._buffer.withdraw(job_id)
        if waiting is not None and why == "cancel":
            self._end(waiting, Cancelled())
        elif waiting is not None:
            self._leases.drop([(job_id, waiting.fence)])
        for slot in self._slots:
            if slot.job is not None and slot.job.id == job_id:
                slot.interrupt(why)

    def _give_up_stubborn(self) -> None:
        """Stop renewing for handlers that ignore that they should stop; without slots, end."""
        latest = asyncio.get_running_loop().time() - self.options.stubborn_s
        for slot in self._slots:
            if slot.job is not None and slot.asked_at is not None and slot.asked_at < latest:
                if not slot.is_lost:
                    log.error(
                        "job %s ignores that it should stop; its slot is lost",
                        slot.job.id,
                        extra={"event": "worker.slot_lost", "job_id": slot.job.id},
                    )
                slot.is_lost = True
                self._leases.drop([(slot.job.id, slot.job.fence)])
        if all(slot.is_lost for slot in self._slots):
            raise WorkerStuck(f"worker {self.id}: all {len(self._slots)} slots are lost")

    async def _beat(self) -> None:
        """Say that the worker lives; then, after its last word, that it is gone."""
        pause_s = 0.0
        while not await self._leaving.wait(pause_s):
            pause_s = self.options.heartbeat_s
            try:
                await self._store.beat(self._info())
            except BackendUnavailable as error:
                log.warning("heartbeat: %s", error, extra={"event": "worker.unavailable"})
        with suppress(BackendUnavailable):
            await self._store.remove_worker(self.id)

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            self.id,
            socket.gethostname(),
            os.getpid(),
            self.options.queues,
            self.options.slots,
            running=sum(slot.job is not None for slot in self._slots),
            is_stopping=self._is_stopping,
        )

    async def _drain(self) -> int:
        """Give back what has not begun, let handlers end, then ask them to; store all of it.

        Gives the number of handlers that did not stop.
        """
        for job in self._buffer.empty():
            self._end(job, Released())
        with suppress(BackendUnavailable):
            await self._store.beat(self._info())
        ending = asyncio.create_task(self._until_idle(self.options.drain_s))
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait((ending, hurried), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            hurried.cancel()
        for slot in self._slots:
            slot.interrupt("stop")
        await self._until_idle(self.options.stubborn_s)
        stubborn = sum(slot.job is not None for slot in self._slots)
        with suppress(TimeoutError, BackendUnavailable):
            async with asyncio.timeout(self.options.lease_s):
                await self._ends.drain()
                if self._consequences is not None:
                    await self._consequences.settle()
        return stubborn

    async def _until_idle(self, seconds: float) -> None:
        waiting = [slot.until_idle() for slot in self._slots if not slot.is_lost]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*waiting)


async def _end_parts(parts: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait a little: a handler that swallows its cancelling is left behind."""
    for part in parts:
        part.cancel()
    await asyncio.wait(parts, timeout=_ENDING_S)


def _pause_s(claims: Claims, idle_polls: Backoff) -> float:
    pause_s = idle_polls.next()
    if claims.wake_at_ms is None:
        return pause_s
    # A millisecond more, so that the database's clock has passed the time for certain.
    return min(pause_s, max(claims.wake_at_ms - claims.now_ms + 1, _SOONEST_MS) / 1000)
