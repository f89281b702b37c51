"""Edits of a schedule after one of its jobs has completed.

A schedule whose runs keep failing is paused; an interval that a job asked for is set once the job
has succeeded. Both are separate edits after the completion is stored: nothing waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from duly.errors import BackendUnavailable, DulyError, InvalidInput
from duly.flows.context import Calls
from duly.model.jobs import JobId, JobState, LeasedJob
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule, ScheduleId, clamp_interval_ms
from duly.rules.outcomes import Finish
from duly.runtime.backoff import Backoff, Signal
from duly.stores.port import Store
from duly.triggers import Every

log = logging.getLogger(__name__)

_MAX_TRIES = 10
_MAX_WAITING = 10_000
"""Most waiting edits; beyond that the oldest is dropped, and the next failure repeats it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An interval that a running job asked for."""

    schedule_id: ScheduleId
    nominal_ms: int
    interval_ms: int
    by: str


class PostRunActions:
    """Edits of schedules waiting to be stored."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._store: Store = calls.reach.store
        self._asked: dict[JobId, Asked] = {}
        self._waiting: deque[Asked | ScheduleId] = deque(maxlen=_MAX_WAITING)
        self._something = Signal()

    def ask_interval(self, job: LeasedJob, interval_ms: int) -> None:
        """Keep the interval that a running job asks for; the last request counts."""
        if job.schedule_id is not None and job.nominal_ms is not None:
            schedule_id = ScheduleId(job.schedule_id)
            by = f"action:{job.action}"
            self._asked[job.id] = Asked(schedule_id, job.nominal_ms, interval_ms, by)

    def forget(self, job_id: JobId) -> None:
        """Drop what a job asked for, because its lease was lost."""
        self._asked.pop(job_id, None)

    def ended(self, finishes: Sequence[Finish], refused: Sequence[JobId]) -> None:
        """Queue the edits that stored completions call for; refused completions are ignored."""
        for end in finishes:
            if end.schedule_id is None:
                continue
            asked = self._asked.pop(end.job_id, None)
            if end.job_id in refused:
                continue
            if end.state is JobState.SUCCEEDED and asked is not None:
                self._wait(asked)
            elif end.state is JobState.DEAD:
                self._wait(ScheduleId(end.schedule_id))

    def _wait(self, edit: Asked | ScheduleId) -> None:
        self._waiting.append(edit)
        self._something.set()

    async def run(self) -> None:
        """Store edits as they come, until cancelled."""
        backoff = Backoff()
        while True:
            await self._something.wait()
            try:
                await self.settle()
                backoff.reset()
            except BackendUnavailable as error:
                log.warning("schedules: %s", error, extra={"event": "worker.unavailable"})
                await asyncio.sleep(backoff.next())
                self._something.set()

    async def settle(self) -> None:
        """Store all waiting edits."""
        while self._waiting:
            first = self._waiting[0]
            try:
                await (self._set_interval(first) if isinstance(first, Asked) else self._look(first))
            except BackendUnavailable:
                raise
            except DulyError as error:
                log.warning("schedules: %s", error, extra={"event": "schedule.edit_failed"})
            if self._waiting and self._waiting[0] is first:
                self._waiting.popleft()

    async def _look(self, schedule_id: ScheduleId) -> None:
        paused = await self._store.pause_failing(schedule_id)
        if paused is not None:
            log.warning(
                "schedule %r of %s: %s",
                paused.name,
                paused.scope,
                paused.definition.note,
                extra={"event": "schedule.paused", "schedule_id": schedule_id},
            )

    async def _set_interval(self, asked: Asked) -> None:
        for _ in range(_MAX_TRIES):
            found = await self._store.find_schedule(asked.schedule_id)
            write = None if found is None else self._write(found, asked)
            if write is None:
                return
            (answer,) = await self._store.put_schedules([write])
            if isinstance(answer, ScheduleWritten):
                return

    def _write(self, found: Schedule, asked: Asked) -> ScheduleWrite | None:
        """Return the edit; None: nothing changes, or the schedule no longer allows it."""
        rule = found.definition.trigger
        try:
            interval_ms = clamp_interval_ms(found.definition, asked.interval_ms)
        except InvalidInput:
            return None
        if not isinstance(rule, Every) or rule.interval_ms == interval_ms:
            return None
        # From the nominal time of the job that asked, so that the next time is an interval later.
        limits = replace(rule.limits, start_ms=asked.nominal_ms)
        trigger = replace(rule, interval_ms=interval_ms, limits=limits)
        return ScheduleWrite(
            ScheduleKey(found.flow, str(found.scope), found.name),
            found.id,
            msgspec.structs.replace(found.definition, trigger=trigger),
            self._calls.reach.schedules(found.flow).limits,
            found.version,
            asked.by,
        )
