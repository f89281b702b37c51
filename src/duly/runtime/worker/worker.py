"""The worker.

Claims jobs ahead into a small buffer, runs them in slots that refill one by one, stores completions
in batches and renews leases concurrently. Only its own slot waits for a handler.
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
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from duly.clock import Clock, SystemClock
from duly.engine.ids import new_id
from duly.errors import DulyError, InvalidInput
from duly.flows.context import Calls
from duly.flows.flow import Action, queues_of
from duly.model.claims import MAX_JOB_CLAIM, ClaimRequest
from duly.model.jobs import JobId, JobState, LeasedJob, StartMode, WorkerId, check_queues
from duly.model.queues import WorkerInfo
from duly.operate.redaction.raised import traceback_of
from duly.rules.outcomes import Cancelled, Failed, Finish, Released, Succeeded, decide
from duly.runtime.backoff import STORE_FAILURES, Backoff, Signal, end_tasks, in_loop, pause_after
from duly.runtime.worker import attempt_log
from duly.runtime.worker.admission import Admission
from duly.runtime.worker.buffer import Buffer
from duly.runtime.worker.completions import Completions
from duly.runtime.worker.isolation import Children, Hooks
from duly.runtime.worker.job_context import Interruption, SlotContext
from duly.runtime.worker.leases import Leases, Note
from duly.runtime.worker.post_run import PostRunActions
from duly.runtime.worker.slots import Slot
from duly.runtime.worker.starts import Starts
from duly.runtime.worker.watchdog import Watchdog
from duly.stores.port import JobStore

log = logging.getLogger(__name__)

OnDead = Callable[[JobId, str], None]
_lease_of: Callable[[Finish], tuple[JobId, int]] = itemgetter(0, 1)
"""Returns job and fence of a completion; access by name takes three times as long."""
LOOK_S = 0.5
"""Seconds between two checks for lost slots while the buffer is full."""
_ENDING_S = 2.0
"""Seconds that the tasks of a worker may take to end."""


class WorkerStuck(DulyError):
    """Handlers ignore requests to stop: they hold every slot, or outlive a stopping worker."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker."""

    queues: tuple[str, ...] | None = None
    """Queues, served in turn; priority orders jobs within a queue. None: `default` and every queue
    that an action of the application declares."""
    slots: int = 16
    """Handlers that run at once."""
    buffer: int = 4_000
    """Most jobs claimed ahead of free slots."""
    ahead_s: float = 0.5
    """Seconds of work, at its own pace, that a worker claims ahead; small, to share the work."""
    lease_s: float = 30.0
    """Seconds until the lease of a job expires without renewal; renewed after a third of it."""
    fair: bool = False
    """Serve the least recently served (queue, workspace) pair first."""
    token_batch: int = 10
    """Fair workers: jobs taken under one token while many workspaces wait."""
    max_token_batch: int | None = None
    """Fair workers: most jobs under one token while few workspaces wait. None: the jobs that the
    worker claims ahead are shared between them; with a `token_batch` of 1 it stays 1."""
    token_lease_s: float = 10.0
    """Fair workers: seconds until a token expires without renewal."""
    poll_s: float = 5.0
    """Longest wait, in seconds, of an idle worker for a notification before it polls."""
    quick_poll_s: float = 0.5
    """The same for backends that send no notifications."""
    isolated: int = 4
    """Child processes for jobs that were running when their worker died; 0: none."""
    heartbeat_s: float = 10.0
    """Seconds between two heartbeats."""
    progress_s: float = 1.0
    """Seconds between two writes of progress while no completions are stored."""
    drain_s: float = 30.0
    """Seconds that running handlers may take to end when the worker stops."""
    stubborn_s: float = 10.0
    """Seconds that a handler that was asked to stop may hold its slot before the slot is lost."""
    block_limit_s: float | None = None
    """Seconds that a handler may block the event loop before the process ends; None: as long as a
    lease; 0: no limit."""
    on_dead: OnDead | None = None
    """Called with the id and last error of a job that became dead on this worker."""

    def __post_init__(self) -> None:
        if self.queues is not None:
            check_queues(self.queues)
        bounds = {"slots": (1, 1_000), "buffer": (1, 4_000), "token_batch": (1, 1_000)}
        for name, (least, most) in (bounds | {"isolated": (0, 100)}).items():
            if not least <= getattr(self, name) <= most:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: {least} to {most}")
        if not self.token_batch <= self.token_room <= MAX_JOB_CLAIM:
            allowed = f"token_batch ({self.token_batch}) to {MAX_JOB_CLAIM}"
            raise InvalidInput(f"max_token_batch is {self.max_token_batch}; allowed: {allowed}")
        for name in ("lease_s", "token_lease_s", "poll_s", "quick_poll_s", "heartbeat_s"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: more than 0")

    @property
    def token_room(self) -> int:
        """Return how many jobs may be held under one token."""
        if self.max_token_batch is None:
            return 1 if self.token_batch == 1 else MAX_JOB_CLAIM
        return self.max_token_batch


class Worker:
    """The worker loop. `run()` ends after `stop()`, once every job has completed or is released."""

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
        self.queues = queues_of(actions) if self.options.queues is None else self.options.queues
        self._store = store
        self._actions = tuple(sorted(actions))
        self._poll_s = self.options.poll_s if notifies else self.options.quick_poll_s
        self._threads = ThreadPoolExecutor(self.options.slots, "duly-handler")
        self._completions = Completions(store, self._on_stored, self.options.progress_s)
        self._leases = Leases(
            store,
            self.id,
            self.options.lease_s,
            self.options.token_lease_s,
            fair=self.options.fair,
        )
        self._post_run = None if calls is None else PostRunActions(calls)
        ask_interval = None if self._post_run is None else self._post_run.ask_interval
        self._hooks = Hooks(self._completions.note_progress, ask_interval)
        self._children: Children | None = None
        slot_context = SlotContext(
            actions,
            clock or SystemClock(),
            self._threads,
            self._completions.note_progress,
            Starts(store, self.id).record,
            calls,
            ask_interval,
        )
        admission = None if calls is None else Admission(calls, self._threads)
        self._slots = [Slot(slot_context, admission) for _ in range(self.options.slots)]
        for slot in self._slots:
            slot.is_ending = False
        self._wake = Signal()
        self._leases.on_free = self._wake.set
        self._buffer = Buffer(
            self.options.buffer, self.options.ahead_s, self._wake.set, fair=self.options.fair
        )
        self._look_at_leases = Signal()
        self._leaving = Signal()
        self._hurried = Signal()
        self._is_stopping = False
        self._is_told = False
        """Whether attempts are logged: checked with each claim, not with each job."""
        self._turns = 0
        self._waiting: set[asyncio.Task[None]] = set()
        """Tasks that wait until an earlier attempt of their job has ended in this worker."""

    def isolate_with(self, children: Children) -> None:
        """Run suspects in child processes; call it before run()."""
        children.hooks = self._hooks
        self._children = children
        slot_context = replace(self._slots[0].slot_context, isolation=children)
        for slot in self._slots:
            slot.slot_context = slot_context

    def count_with(self, note: Note) -> None:
        """Set the function that counts anomalies, such as late renewals."""
        self._leases.note = note

    def stop(self) -> None:
        """Stop claiming, give handlers `drain_s` to end, then release the rest."""
        self._is_stopping = True
        self._wake.set()

    def stop_now(self) -> None:
        """Cut the drain short: ask running handlers to stop now."""
        self._hurried.set()

    async def run(self) -> None:
        """Work until stopped; raise WorkerStuck if handlers hold every slot, or do not stop."""
        loop = asyncio.get_running_loop()
        end_listening = self._store.listen(in_loop(loop, self._on_hint))
        feeding = asyncio.create_task(self._feed())
        beside = [
            asyncio.create_task(each)
            for each in (
                *map(self._serve, self._slots),
                self._completions.run(),
                self._renew_leases(),
                *([] if self._post_run is None else [self._post_run.run()]),
            )
        ]
        heartbeats = asyncio.create_task(self._beat())
        watchdog = self._watch(loop)
        parts = (feeding, heartbeats, *beside)
        stuck = 0
        broken = False
        try:
            # Only feeding ends by itself; another part ends only with an error.
            ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            broken = any(part.cancelled() for part in ended)
        finally:
            self.stop()
            try:
                # Wait for a claim in progress: the jobs that it takes must be released.
                await asyncio.wait([feeding], timeout=_ENDING_S)
                end_listening()
                stuck = await self._drain()
                self._leaving.set()
                await asyncio.wait([heartbeats], timeout=_ENDING_S)
            finally:
                for slot in self._slots:
                    slot.is_ending = True
                await end_tasks([*parts, *self._waiting], _ENDING_S)
                if watchdog is not None:
                    watchdog.close()
                if self._children is not None:
                    await self._children.close()
                self._threads.shutdown(wait=False)
        for part in parts:
            if part.done() and not part.cancelled():
                part.result()
        if broken:
            raise WorkerStuck(f"worker {self.id}: one of its tasks was cancelled from within")
        if stuck:
            raise WorkerStuck(f"worker {self.id}: handlers of {stuck} jobs did not stop")

    def _watch(self, loop: asyncio.AbstractEventLoop) -> Watchdog | None:
        limit_s = self.options.block_limit_s
        limit_s = self.options.lease_s if limit_s is None else limit_s
        return Watchdog(loop, limit_s, self._job_of, self._store_failure) if limit_s else None

    def _job_of(self, task: asyncio.Task[Any] | None) -> LeasedJob | None:
        """Return the job whose handler a task runs; may be called from any thread."""
        return next((slot.job for slot in self._slots if slot.is_served_by(task)), None)

    async def _store_failure(self, job: LeasedJob, why: str) -> None:
        """Store that a handler blocked its worker, and isolate the job from now on."""
        is_charged = job.careful != StartMode.AHEAD
        failed = decide(job, Failed(why), random.random(), is_charged=is_charged)  # noqa: S311
        await self._store.finish([failed._replace(isolate=True)])

    def _on_hint(self, hint: str) -> None:
        kind, _, name = hint.partition(":")
        if kind == "queue" and (name == "*" or name in self.queues):
            self._wake.set()
        elif kind == "cancel" and name in self._leases:
            self._look_at_leases.set()

    async def _feed(self) -> None:
        """Claim while there is room and there are jobs; else sleep until there may be."""
        loop = asyncio.get_running_loop()
        failures, idle_polls = Backoff(), Backoff(0.02, self._poll_s)
        asked_at = loop.time()
        while not self._is_stopping:
            self._give_up_stubborn()
            if not self._buffer.is_wanting:
                await self._wake.wait(LOOK_S)
                continue
            if self._buffer.measure(loop.time() - asked_at):
                asked_at = loop.time()
            try:
                claims, again = await self._leases.claim(self._request())
            except STORE_FAILURES as error:
                log.warning("claim: %s", error, extra={"event": "worker.unavailable"})
                await self._wake.wait(failures.next())
                continue
            failures.reset()
            self._is_told = attempt_log.is_notified()
            self._buffer.take(self._without_earlier(claims.jobs, again))
            await self._leases.give_back()
            if claims.jobs:
                idle_polls.reset()
            else:
                await self._wake.wait(pause_after(claims, idle_polls))

    def _without_earlier(self, jobs: list[LeasedJob], again: Collection[JobId]) -> list[LeasedJob]:
        """Return the claimed jobs of which no earlier attempt still runs in this worker.

        A process that stalled may claim a job again before it knows that it lost the lease. The
        earlier attempt is asked to stop, and the new one starts when it has, or when its slot is
        lost: the fence refuses its later writes. An earlier attempt in the buffer never starts.
        """
        for job_id in again:
            self._buffer.withdraw(job_id)
        running = {slot.job.id: slot for slot in self._slots if slot.job is not None}
        if not any(job.id in running for job in jobs):
            return jobs
        for job in [each for each in jobs if each.id in running]:
            slot = running[job.id]
            slot.interrupt("lost")
            waiting = asyncio.create_task(self._begin_after(slot, job))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)
        return [job for job in jobs if job.id not in running]

    async def _begin_after(self, slot: Slot, job: LeasedJob) -> None:
        """Start a job when the earlier attempt has ended, or has ignored the request to stop.

        Waiting longer could delay the next attempt for ever if there is no other worker.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if slot.is_lost else self.options.stubborn_s):
                await slot.until_idle()
        if not self._is_stopping and (job.id, job.fence) in self._leases.items():
            self._buffer.take([job])
        else:
            self._end(job, Released("an earlier attempt still runs here"))

    def _request(self) -> ClaimRequest:
        options = self.options
        self._turns += 1
        first = self._turns % len(self.queues)
        room = self._buffer.room
        return ClaimRequest(
            worker=self.id,
            queues=self.queues[first:] + self.queues[:first],
            limit=room,
            lease_ms=int(options.lease_s * 1000),
            actions=self._actions,
            fair=options.fair,
            tokens=max(1, -(-room // options.token_batch)),
            token_batch=options.token_batch,
            max_token_batch=options.token_room,
            token_lease_ms=int(options.token_lease_s * 1000),
        )

    async def _serve(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        buffer, completions = self._buffer, self._completions
        while True:
            job = buffer.pop() or await buffer.next()
            begun_at = loop.time() if self._is_told else 0.0
            outcome = await slot.run(job)
            if begun_at:
                attempt_log.tell(job, outcome, loop.time() - begun_at, slot.slot_context.clock)
            if outcome is None:
                self._leases.drop([(job.id, job.fence)])
                if self._post_run is not None:
                    self._post_run.forget(job.id)
            else:
                # A random share spreads retries; a success needs none.
                chance = 0.0 if type(outcome) is Succeeded else random.random()  # noqa: S311
                if completions.add(decide(job, outcome, chance, slot.took_ms, slot.is_charged)):
                    await completions.until_room()

    def _end(self, job: LeasedJob, outcome: Cancelled | Released) -> None:
        """Complete a job that has not started."""
        self._completions.add(decide(job, outcome))

    async def _on_stored(self, finishes: Sequence[Finish], refused: Sequence[JobId]) -> None:
        self._leases.drop(map(_lease_of, finishes))
        await self._leases.give_back()
        for job_id in refused:
            about = {"event": "job.refused", "job_id": job_id}
            log.warning("job %s: completion refused, its lease was lost", job_id, extra=about)
        dead = JobState.DEAD
        for each in finishes:
            if each.state is dead and each.job_id not in refused:
                self._tell_dead(each)
        if self._post_run is not None:
            self._post_run.ended(finishes, refused)

    def _tell_dead(self, end: Finish) -> None:
        about = {"event": "job.dead", "job_id": end.job_id}
        log.error("job %s is dead: %s", end.job_id, end.error, extra=about)
        if self.options.on_dead is not None:
            try:
                self.options.on_dead(end.job_id, end.error or "")
            except Exception as error:  # noqa: BLE001 - the application's own
                text = traceback_of(error)
                log.error("on_dead failed: %s", text, extra={"event": "job.on_dead_failed"})

    async def _renew_leases(self) -> None:
        while True:
            await self._look_at_leases.wait(self._leases.period_s)
            try:
                renewed = await self._leases.renew()
            except STORE_FAILURES as error:
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
        """Stop renewing leases of handlers that do not stop; WorkerStuck if no slot is left."""
        latest = asyncio.get_running_loop().time() - self.options.stubborn_s
        for slot in self._slots:
            if slot.job is not None and slot.asked_at is not None and slot.asked_at < latest:
                if not slot.is_lost:
                    log.error(
                        "job %s did not stop when asked; its slot is lost",
                        slot.job.id,
                        extra={"event": "worker.slot_lost", "job_id": slot.job.id},
                    )
                slot.is_lost = True
                self._leases.drop([(slot.job.id, slot.job.fence)])
        if all(slot.is_lost for slot in self._slots):
            raise WorkerStuck(f"worker {self.id}: all {len(self._slots)} slots are lost")

    async def _beat(self) -> None:
        """Record heartbeats; after the drain, remove the worker from the store."""
        pause_s = 0.0
        while not await self._leaving.wait(pause_s):
            pause_s = self.options.heartbeat_s
            try:
                await self._store.beat(self._info())
            except STORE_FAILURES as error:
                log.warning("heartbeat: %s", error, extra={"event": "worker.unavailable"})
        with suppress(*STORE_FAILURES):
            await self._store.remove_worker(self.id)

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            self.id,
            socket.gethostname(),
            os.getpid(),
            self.queues,
            self.options.slots,
            running=sum(slot.job is not None for slot in self._slots),
            is_stopping=self._is_stopping,
            actions=self._actions,
        )

    async def _drain(self) -> int:
        """Release jobs that have not started, wait for handlers, then ask them to stop.

        Store all completions; return the number of handlers that did not stop.
        """
        for job in self._buffer.empty():
            self._end(job, Released())
        with suppress(*STORE_FAILURES):
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
        stuck = sum(slot.job is not None for slot in self._slots)
        with suppress(TimeoutError, *STORE_FAILURES):
            async with asyncio.timeout(self.options.lease_s):
                await self._completions.drain()
                if self._post_run is not None:
                    await self._post_run.settle()
        return stuck

    async def _until_idle(self, seconds: float) -> None:
        waiting = [slot.until_idle() for slot in self._slots if not slot.is_lost]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*waiting)
