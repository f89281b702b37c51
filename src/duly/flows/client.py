"""The client: enqueue jobs, read their state and results, cancel, retry and delete them.

Input and options are checked before anything is written; a refusal is an exception whose message
states the remedy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice, repeat
from typing import Any, Unpack, overload

from msgspec.structs import force_setattr

from duly.clock import Clock, SystemClock
from duly.engine.ids import new_id, new_ids
from duly.errors import Conflict, InvalidInput, shown
from duly.flows.callers_transaction import AsyncTransaction, join
from duly.flows.flow import Action
from duly.flows.job_answers import granted, result_of
from duly.flows.job_options import NO_ID, encode, encode_many, find_action, template_of
from duly.flows.job_requests import JobOptions
from duly.model.jobs import Job, JobId, NewJob, check_text
from duly.model.stored_jobs import MAX_INSERT, Enqueued, KeyTaken
from duly.stores.port import Store
from duly.triggers.instants import to_ms

MAX_ENQUEUE = 1_000_000
_AT_ONCE = 2
"""Transactions in progress: while the database writes one, the next is prepared."""
Keys = Callable[[Any], str | None] | Sequence[str | None]
"""The idempotency key of each input, or a function that returns it."""


class Client:
    """The calls on jobs of an application."""

    def __init__(
        self,
        store: Store,
        *,
        actions: Mapping[str, Action] | None = None,
        aging_ms: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._actions = {} if actions is None else actions
        self._aging_ms = aging_ms
        self._clock = SystemClock() if clock is None else clock

    async def enqueue(
        self,
        action: Action | str,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Store one job; Conflict if its key is taken by a job with another input."""
        job = self._one(action, input, options, await self._now_ms(options))
        return _accepted([job], await self._store.insert_jobs([job]))[0]

    @overload
    def enqueue_in(
        self,
        connection: AsyncTransaction,
        action: Action | str,
        input: object = None,
        **options: Unpack[JobOptions],
    ) -> Awaitable[Enqueued]: ...

    @overload
    def enqueue_in(
        self,
        connection: Any,
        action: Action | str,
        input: object = None,
        **options: Unpack[JobOptions],
    ) -> Enqueued: ...

    def enqueue_in(
        self,
        connection: Any,
        action: Action | str,
        input: object = None,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> Enqueued | Awaitable[Enqueued]:
        """Store one job inside the caller's own transaction: committed or rolled back with it.

        Takes a SQLAlchemy Connection or Session, on which it is a plain call, since the connection
        must stay on the caller's thread; or an AsyncConnection or AsyncSession, on which it must be
        awaited. A delay counts from this host's clock, which needs no query.
        """
        job = self._one(action, input, options, to_ms(self._clock.now()))
        return join(
            connection,
            lambda plain: _accepted([job], self._store.insert_jobs_in(plain, [job]))[0],
        )

    async def enqueue_many(
        self,
        action: Action | str,
        inputs: Iterable[object],
        *,
        keys: Keys | None = None,
        **options: Unpack[JobOptions],
    ) -> list[Enqueued]:
        """Store a job for each input, to be run in this order; return an answer for each, in order.

        One invalid input refuses all. Every 10,000 jobs are one transaction. If a key is taken by a
        job with another input, Conflict is raised after all other jobs were stored.
        """
        jobs = self._many(action, inputs, keys, options, await self._now_ms(options))
        answers: list[Enqueued | KeyTaken] = []
        for start in range(0, len(jobs), MAX_INSERT * _AT_ONCE):
            batches = _batches(jobs[start : start + MAX_INSERT * _AT_ONCE])
            for stored in await asyncio.gather(*map(self._store.insert_jobs, batches)):
                answers += stored
        return _accepted(jobs, answers)

    @overload
    def enqueue_many_in(
        self,
        connection: AsyncTransaction,
        action: Action | str,
        inputs: Iterable[object],
        *,
        keys: Keys | None = None,
        **options: Unpack[JobOptions],
    ) -> Awaitable[list[Enqueued]]: ...

    @overload
    def enqueue_many_in(
        self,
        connection: Any,
        action: Action | str,
        inputs: Iterable[object],
        *,
        keys: Keys | None = None,
        **options: Unpack[JobOptions],
    ) -> list[Enqueued]: ...

    def enqueue_many_in(
        self,
        connection: Any,
        action: Action | str,
        inputs: Iterable[object],
        *,
        keys: Keys | None = None,
        **options: Unpack[JobOptions],
    ) -> list[Enqueued] | Awaitable[list[Enqueued]]:
        """Store a job for each input inside the caller's own transaction, as enqueue_in() does.

        A Conflict leaves the transaction usable.
        """
        jobs = self._many(action, inputs, keys, options, to_ms(self._clock.now()))

        def insert(plain: Any) -> list[Enqueued]:
            answers: list[Enqueued | KeyTaken] = []
            for batch in _batches(jobs):
                answers += self._store.insert_jobs_in(plain, batch)
            return _accepted(jobs, answers)

        return join(connection, insert)

    async def job(self, job_id: JobId) -> Job | None:
        """Return the job; None: it was never stored, or was removed after its retention."""
        return await self._store.get_job(job_id)

    async def result(self, job_id: JobId) -> Any:
        """Return what the action returned; Conflict if it has not, or not yet, succeeded."""
        return result_of(job_id, await self._store.get_job(job_id))

    async def cancel(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job:
        """Cancel a job that has not started; ask a running one to stop (`cancel_asked`)."""
        return granted(await self._store.cancel_job(job_id, by=by, reason=reason), "cancelled")

    async def retry(
        self,
        job_id: JobId,
        *,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> Job:
        """Queue a dead job again, or a waiting one at once.

        Without reset_attempts it gets one more attempt instead of all of them.
        """
        answer = await self._store.retry_job(
            job_id, reset_attempts=reset_attempts, by=by, reason=reason
        )
        return granted(answer, "retried")

    async def delete(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job:
        """Clear input, result and error of a queued or ended job."""
        return granted(await self._store.delete_job(job_id, by=by, reason=reason), "deleted")

    async def _now_ms(self, options: JobOptions) -> int:
        """Return the store's time if there is a delay, else 0, which saves a round trip."""
        return 0 if options.get("delay") is None else await self._store.now_ms()

    def _one(self, action: Action | str, given: object, options: JobOptions, now_ms: int) -> NewJob:
        known, template = self._template(action, options, now_ms)
        text = encode(known, template.action, given)
        return _stamped(template, new_id(NO_ID, clock=self._clock), text)

    def _many(
        self,
        action: Action | str,
        inputs: Iterable[object],
        keys: Keys | None,
        options: JobOptions,
        now_ms: int,
    ) -> list[NewJob]:
        if options.get("key") is not None:
            raise InvalidInput("key= is for one job; pass keys= with one key for each input")
        given = _listed("inputs", inputs)
        if len(given) > MAX_ENQUEUE:
            raise InvalidInput(f"more than {MAX_ENQUEUE} jobs at once; allowed: {MAX_ENQUEUE}")
        known, template = self._template(action, options, now_ms)
        texts = encode_many(known, template.action, given)
        ids = new_ids(NO_ID, len(given), clock=self._clock)
        jobs = list(map(_stamped, repeat(template), ids, texts))
        if keys is not None:
            for job, key in zip(jobs, _keys(keys, given), strict=True):
                force_setattr(job, "key", key)
        return jobs

    def _template(
        self, action: Action | str, options: JobOptions, now_ms: int
    ) -> tuple[Action | None, NewJob]:
        name, known = find_action(action, self._actions)
        return known, template_of(name, known, options, now_ms, self._aging_ms)


def _batches(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Return the jobs in batches of one transaction."""
    return [jobs[start : start + MAX_INSERT] for start in range(0, len(jobs), MAX_INSERT)]


def _stamped(template: NewJob, job_id: str, text: str) -> NewJob:
    # A copy is not checked again, as template and text were; the checks are most of the cost.
    job = copy(template)
    force_setattr(job, "id", job_id)
    force_setattr(job, "input", text)
    return job


def _listed(what: str, items: Iterable[Any]) -> list[Any]:
    given: object = items
    if not isinstance(given, Iterable):
        raise InvalidInput(f"{what} is {shown(given)}; pass a list with one for each job")
    return list(islice(given, MAX_ENQUEUE + 1))


def _keys(keys: Keys, given: Sequence[object]) -> list[str | None]:
    found = [keys(each) for each in given] if callable(keys) else _listed("keys", keys)
    if isinstance(keys, str) or len(found) != len(given):
        raise InvalidInput(f"{len(found)} keys for {len(given)} inputs; pass one for each")
    for key in found:
        if key is not None:
            check_text("key", key)
    return found


def _accepted(jobs: Sequence[NewJob], answers: Sequence[Enqueued | KeyTaken]) -> list[Enqueued]:
    stored = [answer for answer in answers if isinstance(answer, Enqueued)]
    if len(stored) == len(jobs):
        return stored
    job, taken = next(
        pair for pair in zip(jobs, answers, strict=True) if isinstance(pair[1], KeyTaken)
    )
    message = (
        f"key {job.key!r} of {job.action} in workspace {job.workspace} is taken by job "
        f"{taken.job_id} with another input; use another key, or the same input"
    )
    if len(jobs) > 1:
        message += (
            f". The keys of {len(jobs) - len(stored)} jobs are taken; {len(stored)} are stored"
        )
    raise Conflict(message)
