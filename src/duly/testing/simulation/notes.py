"""A store wrapper that records a worker's runs and lets an idle worker wait without polling.

Only for a store used by a single worker: then new work always comes with a hint or a known time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from duly.model.claims import ClaimRequest, Claims
from duly.model.jobs import JobId, JobState, LeasedJob
from duly.model.schedules import ScheduleId, binding_key
from duly.model.scopes import Scope
from duly.rules.outcomes import Finish
from duly.runtime.backoff import Signal
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.triggers.instants import from_ms


class Run(NamedTuple):
    """One attempt of one handler."""

    schedule: str | None
    """`flow/owner/name`. None: the job was enqueued without a schedule."""
    nominal_at: datetime | None
    began_at: datetime
    ended_at: datetime
    state: JobState
    """State of the job after the attempt: `succeeded`, `retrying`, `dead`, ..."""
    error: str | None
    job_id: JobId


class Notes:
    """A store wrapper that records claims and completions of a worker."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock
        self._begun: dict[JobId, tuple[LeasedJob, datetime]] = {}
        self._names: dict[str, str] = {}
        self._news = Signal()
        self._is_over = False
        self.changed = Signal()
        """Set when a handler begins or ends."""
        self.runs: list[Run] = []
        self._end_listening = store.listen(lambda _hint: self._news.set())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def is_busy(self) -> bool:
        """True while a handler is running or about to run."""
        return bool(self._begun)

    def stop(self) -> None:
        """Wake waiting claims; later ones return at once."""
        self._end_listening()
        self._is_over = True
        self._news.set()

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        """Claim queued jobs; if there are none, wait until there may be some and try once more."""
        claims = await self._store.claim_jobs(request)
        if not claims.jobs and not self._is_over:
            rest_ms = None if claims.wake_at_ms is None else claims.wake_at_ms - claims.now_ms
            await self._news.wait(None if rest_ms is None else max(rest_ms, 1) / 1_000)
            claims = await self._store.claim_jobs(request)
        for job in claims.jobs:
            self._begun[job.id] = job, self._clock.now()
            self.changed.set()
        return claims

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        """Store the ends of attempts and record each run; return the refused ids."""
        refused = await self._store.finish(finishes)
        self._news.set()  # the worker has free slots again and may claim more
        for each in finishes:
            begun = self._begun.pop(each.job_id, None)
            if begun is not None and each.job_id not in refused:
                await self._note(each, *begun)
        self.changed.set()
        return refused

    async def _note(self, end: Finish, job: LeasedJob, began_at: datetime) -> None:
        nominal_at = None if job.nominal_ms is None else from_ms(job.nominal_ms)
        name, ended_at = await self._name(job), self._clock.now()
        self.runs.append(Run(name, nominal_at, began_at, ended_at, end.state, end.error, job.id))

    async def _name(self, job: LeasedJob) -> str | None:
        """Return the schedule's key from its ledger, since the schedule may have been deleted."""
        if job.schedule_id is None:
            return None
        if job.schedule_id not in self._names:
            (row,) = await self._store.list_occurrences(ScheduleId(job.schedule_id), limit=1)
            self._names[job.schedule_id] = binding_key(row.flow, Scope.parse(row.scope), row.name)
        return self._names[job.schedule_id]
