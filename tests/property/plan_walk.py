"""A random walk over planning, for every store: edits, pauses, extra runs, outages and workers.

A step follows from the seed and the state of the model, so stores that take the same steps on the
same clock must end in the same state. Job ids differ between stores, but not their order, so they
are compared by rank.
"""

import json
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec

from duly.model.claims import ClaimRequest
from duly.model.jobs import Job, JobId, LeasedJob, WorkerId
from duly.model.plans import Backfill, PlanRequest
from duly.model.retries import RetryPolicy
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, Misfire, Policies, Schedule, ScheduleId
from duly.model.stored_jobs import JobFilter, Retention
from duly.rules.outcomes import Cancelled, Failed, Finish, Outcome, Released, Succeeded, decide
from duly.stores.port import Store
from duly.testing import ManualClock
from duly.triggers import Trigger, cron, every, once

FLOW, SCOPE = "mail", "system"
NAMES = ("a", "b", "c")
WORKERS = [WorkerId(name) for name in ("w1", "w2")]
MINUTE_MS = 60_000
REMEMBERED = 30

Ask = Callable[[Store, dict[JobId, JobId]], Coroutine[Any, Any, object]]
"""A step: takes the store, and its job ids by those of the model."""


class PlanWalk:
    """Generates the steps of a walk from the state of a model."""

    def __init__(self, seed: int, clock: ManualClock, model: Store) -> None:
        self._chance = random.Random(seed)
        self._clock = clock
        self._model = model
        self._leases: list[LeasedJob] = []
        self.ids: list[ScheduleId] = []
        """Ids of all schedules that were ever created."""
        self.moved: set[ScheduleId] = set()
        """Schedules whose next time was moved by an edit or a pause."""
        self.retried: set[str] = set()
        """Schedules of jobs that an operator retried."""
        self._makers: dict[Callable[[], Coroutine[Any, Any, Ask]], int] = {
            self._put: 12,
            self._delete_schedule: 1,
            self._plan: 22,
            self._claim: 16,
            self._finish: 16,
            self._sweep: 8,
            self._run_now: 6,
            self._backfill: 5,
            self._pause_failing: 3,
            self._cancel: 3,
            self._retry: 2,
            self._delete_job: 2,
            self._prune: 1,
        }

    async def next(self) -> tuple[str, Ask]:
        """Advance the clock, and return the next step with its name."""
        steps_ms = [0, 1, 7_000, 20_000, MINUTE_MS, 5 * MINUTE_MS, 60 * MINUTE_MS, 400 * MINUTE_MS]
        (step_ms,) = self._chance.choices(steps_ms, [30, 5, 20, 25, 12, 5, 2, 1])
        self._clock.advance(milliseconds=step_ms)
        (maker,) = self._chance.choices(list(self._makers), list(self._makers.values()))
        return maker.__name__.strip("_"), await maker()

    def learn(self, answer: object) -> None:
        """Remember the jobs that workers of the model claimed."""
        if isinstance(answer, tuple) and hasattr(answer, "jobs"):
            self._leases = (self._leases + answer.jobs)[-REMEMBERED:]

    def _pick(self, *choices: Any) -> Any:
        return self._chance.choice(choices)

    def _maybe(self, share: float) -> bool:
        return self._chance.random() < share

    async def _schedules(self) -> list[Schedule]:
        return await self._model.list_schedules(FLOW, SCOPE)

    async def _some_schedule(self) -> ScheduleId:
        schedules = await self._schedules()
        return self._chance.choice(schedules).id if schedules else ScheduleId("nobody")

    async def _some_job(self) -> Job | None:
        jobs = await self._model.list_jobs(JobFilter(), limit=60)
        return self._chance.choice(jobs) if jobs else None

    async def _put(self) -> Ask:
        name = self._pick(*NAMES)
        key = ScheduleKey(FLOW, SCOPE, name)
        earlier = await self._model.get_schedule(key)
        if earlier is None:
            write = ScheduleWrite(key, ScheduleId(f"id-{len(self.ids)}"), self._definition())
            self.ids.append(write.id)
            if not write.definition.enabled:
                self.moved.add(write.id)
        else:
            definition = self._edited(earlier.definition)
            write = ScheduleWrite(key, earlier.id, definition, by=self._pick("ada", "bob"))
            if _timing(definition) != _timing(earlier.definition):
                self.moved.add(earlier.id)
        return lambda store, _: store.put_schedules([write])

    def _definition(self) -> Definition:
        return Definition(
            self._trigger(),
            "send",
            input=self._pick(1, 2),
            enabled=not self._maybe(0.1),
            policies=self._policies(),
            max_runs=self._pick(None, None, None, 1, 4),
        )

    def _trigger(self) -> Trigger:
        soon = timedelta(seconds=self._pick(20, 45, 300))
        return self._chance.choice(
            [
                cron("* * * * *"),
                cron("*/2 * * * *", spread=100),
                every(seconds=20),
                every(minutes=3),
                cron("*/10 * * * *"),
                once(self._clock.now() + soon),
            ]
        )

    def _policies(self) -> Policies:
        return Policies(
            misfire=self._pick(
                Misfire(), Misfire("skip"), Misfire("catch_up", limit=3, per_minute=4)
            ),
            grace_ms=self._pick(0, 30_000, MINUTE_MS, 10 * MINUTE_MS),
            overlap=self._pick("skip", "allow", "buffer_one", "cancel_running"),
            delivery=self._pick("at_least_once", "at_least_once", "at_most_once"),
            priority=self._pick(0, 0, 5),
            retry=RetryPolicy(attempts=2, backoff="fixed", first_delay_ms=20_000, jitter=False),
            pause_after_failures=self._pick(None, 1, 2),
        )

    def _edited(self, earlier: Definition) -> Definition:
        change: dict[str, Any] = self._pick(
            {"input": self._pick(1, 2, 3)},
            {"input": self._pick(1, 2, 3)},
            {"description": self._pick("x", "y")},
            {"enabled": not earlier.enabled},
            {"enabled": True},
            {"trigger": self._trigger()},
            {"policies": self._policies()},
            {"max_runs": self._pick(None, 2, 6)},
        )
        return msgspec.structs.replace(earlier, **change)

    async def _delete_schedule(self) -> Ask:
        key = ScheduleKey(FLOW, SCOPE, self._pick(*NAMES))
        return lambda store, _: store.delete_schedule(key, by="ada")

    async def _plan(self) -> Ask:
        request = PlanRequest(
            look_ahead_ms=self._pick(0, MINUTE_MS, MINUTE_MS, 5 * MINUTE_MS),
            limit=self._pick(1, 2, 1_000),
        )
        return lambda store, _: store.plan_occurrences(request)

    async def _claim(self) -> Ask:
        request = ClaimRequest(
            self._pick(*WORKERS),
            limit=self._pick(1, 2, 5),
            lease_ms=self._pick(5_000, 45_000, 200_000),
        )
        return lambda store, _: store.claim_jobs(request)

    async def _finish(self) -> Ask:
        leases = {each.id: each for each in self._chance.sample(self._leases, self._short_list())}
        ends = [decide(each, self._outcome()) for each in leases.values()]
        return lambda store, ids: store.finish([_of(each, ids) for each in ends])

    def _short_list(self) -> int:
        return min(len(self._leases), self._chance.randint(1, 3))

    def _outcome(self) -> Outcome:
        outcomes: list[Outcome] = [
            Succeeded(),
            Succeeded(),
            Failed("no luck"),
            Failed("no hope", is_final=True),
            Cancelled(),
            Released(),
        ]
        return self._chance.choice(outcomes)

    async def _sweep(self) -> Ask:
        limit = self._pick(1, 2, 1_000)
        if self._maybe(0.6):
            return lambda store, _: store.promote_due(limit)
        return lambda store, _: store.release_expired(limit)

    async def _run_now(self) -> Ask:
        schedule_id, request_id = await self._some_schedule(), self._pick("r1", "r2", "r3", "r4")
        return lambda store, _: store.run_now(schedule_id, request_id)

    async def _backfill(self) -> Ask:
        now_ms = self._clock.now_ms()
        from_ms = now_ms - self._pick(1, 2, 5, 30) * MINUTE_MS - self._pick(0, 1, 30_000)
        to_ms = min(now_ms + 1, from_ms + self._pick(1, 3, 9) * MINUTE_MS + 1)
        limit = self._pick(1, 3, 1_000)
        request = Backfill(await self._some_schedule(), from_ms, to_ms, limit)
        return lambda store, _: store.backfill(request)

    async def _pause_failing(self) -> Ask:
        schedule_id = await self._some_schedule()
        self.moved.add(schedule_id)
        return lambda store, _: store.pause_failing(schedule_id)

    async def _cancel(self) -> Ask:
        job = await self._some_job()
        if job is None:
            return await self._plan()
        return lambda store, ids: store.cancel_job(ids[job.id], by="ada", reason="because")

    async def _retry(self) -> Ask:
        job = await self._some_job()
        if job is None:
            return await self._plan()
        self.retried.add(job.schedule_id or "")
        return lambda store, ids: store.retry_job(ids[job.id], by="ada")

    async def _delete_job(self) -> Ask:
        job = await self._some_job()
        if job is None:
            return await self._plan()
        return lambda store, ids: store.delete_job(ids[job.id], by="ada")

    async def _prune(self) -> Ask:
        kept = Retention(30 * MINUTE_MS, 20 * MINUTE_MS, 60 * MINUTE_MS, MINUTE_MS)
        return lambda store, _: store.prune(kept)


def _of(finish: Finish, ids: dict[JobId, JobId]) -> Finish:
    return finish._replace(job_id=ids.get(finish.job_id, finish.job_id))


def _timing(definition: Definition) -> tuple[object, ...]:
    return definition.trigger, definition.enabled, definition.max_runs


async def all_jobs(store: Store) -> list[Job]:
    """Return all jobs, ordered by id."""
    jobs: list[Job] = []
    while page := await store.list_jobs(
        JobFilter(), before=jobs[-1].id if jobs else None, limit=1_000
    ):
        jobs += page
    return jobs[::-1]


async def dump(store: Store, ids: list[ScheduleId]) -> list[object]:
    """Return everything that can be read about schedules, their rows, jobs and history."""
    known: list[object] = [
        *await store.list_schedules(FLOW, SCOPE),
        *await store.list_rows(limit=1_000),
        *await store.list_quarantined(),
    ]
    for schedule_id in ids:
        known += await store.list_occurrences(schedule_id, limit=1_000)
        for event in await store.schedule_events(schedule_id):
            known += [event.kind, event.at_ms, event.by, json.dumps(event.detail, sort_keys=True)]
    for job in await all_jobs(store):
        known += [job, *await store.job_events(job.id), *await store.job_attempts(job.id)]
    return known
