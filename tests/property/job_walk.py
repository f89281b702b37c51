"""A random walk over the job verbs, with the same steps for every store.

A step follows from the seed of the walk and the earlier answers of the model, so two stores that
take the same steps on the same clock must give the same answers.
"""

import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from duly.model.claims import ClaimRequest, Claims, HeldToken, ProgressNote
from duly.model.jobs import (
    FINAL,
    TRANSITIONS,
    Job,
    JobId,
    JobState,
    LeasedJob,
    NewJob,
    Token,
    WorkerId,
)
from duly.model.queues import QueueSettings, WorkerInfo
from duly.model.retries import RetryPolicy
from duly.model.stored_jobs import DAY_MS, JobFilter, Retention
from duly.rules.outcomes import Cancelled, Failed, Finish, Outcome, Released, Succeeded, decide
from duly.stores.port import Store
from duly.testing import ManualClock

IDS = [JobId(f"job_{number:02}") for number in range(70)]
QUEUES = ("default", "mail", "slow")
WORKSPACES = ("acme", "bolt", "cube", "system")
ACTIONS = ("x.a", "x.b")
WORKERS = [WorkerId(name) for name in ("w1", "w2", "w3")]
RETRIES = [
    RetryPolicy(attempts=3, backoff="fixed", first_delay_ms=1_000),
    RetryPolicy(attempts=1),
    RetryPolicy(attempts=2, backoff="none"),
    RetryPolicy(attempts=6, first_delay_ms=500, longest_delay_ms=60_000),
]
REMEMBERED = 60

Step = Callable[[Store], Coroutine[Any, Any, object]]


class JobWalk:
    """Generates the steps of a walk."""

    def __init__(self, seed: int, clock: ManualClock) -> None:
        self._chance = random.Random(seed)
        self._clock = clock
        self._leases: list[LeasedJob] = []
        self._started: set[tuple[JobId, int]] = set()
        self._tokens: list[tuple[WorkerId, Token]] = []
        self._asker = WORKERS[0]
        self._theirs: dict[tuple[Store, Token], Token] = {}
        """Tokens of a store by the token of the model; their fences may differ."""
        self._makers: dict[Callable[[], Step], int] = {
            self._insert: 20,
            self._claim: 25,
            self._finish: 20,
            self._renew: 6,
            self._release_tokens: 6,
            self._start: 8,
            self._note_progress: 3,
            self._cancel: 5,
            self._retry: 5,
            self._delete: 3,
            self._sweep: 6,
            self._prune: 2,
            self._set_queue: 4,
            self._lock: 6,
            self._worker: 3,
            self._list: 3,
        }

    def next(self) -> tuple[str, Step]:
        """Advance the clock, and return the next step with its name."""
        self._clock.advance(milliseconds=self._time())
        (maker,) = self._chance.choices(list(self._makers), list(self._makers.values()))
        return maker.__name__, maker()

    def learn(self, answer: object) -> None:
        """Remember an answer of the model for later steps."""
        if isinstance(answer, Claims):
            self._leases = (self._leases + answer.jobs)[-REMEMBERED:]
            held = sorted({token for tokens in answer.holds.values() for token in tokens})
            asker = self._asker
            self._tokens = (self._tokens + [(asker, token) for token in held])[-REMEMBERED:]

    def match(self, store: Store, answer: object, expected: object) -> object:
        """Return a store's answer with the tokens of the model, and remember the store's tokens."""
        if not isinstance(answer, Claims) or not isinstance(expected, Claims):
            return answer
        holds = dict(answer.holds)
        for job_id, tokens in expected.holds.items():
            theirs = answer.holds.get(job_id, ())
            if [each[:3] for each in theirs] == [each[:3] for each in tokens]:
                self._theirs |= {
                    (store, token): each for token, each in zip(tokens, theirs, strict=True)
                }
                holds[job_id] = tokens
        return answer._replace(holds=holds)

    def _tokens_of(self, store: Store, tokens: Iterable[Token]) -> list[Token]:
        return [self._theirs.get((store, token), token) for token in tokens]

    def _time(self) -> int:
        return self._chance.choices(
            [0, 1, 400, 1_000, 5_000, 10_000, 30_000, 3_600_000, DAY_MS],
            [40, 10, 10, 10, 10, 6, 6, 1, 1],
        )[0]

    def _pick(self, *choices: Any) -> Any:
        return self._chance.choice(choices)

    def _maybe(self, share: float = 0.5) -> bool:
        return self._chance.random() < share

    def _some(self, choices: Any, most: int) -> list[Any]:
        return [self._chance.choice(choices) for _ in range(self._chance.randint(1, most))]

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    def _insert(self) -> Step:
        jobs = [self._new_job() for _ in range(self._chance.randint(1, 6))]
        return lambda store: store.insert_jobs(jobs)

    def _new_job(self) -> NewJob:
        pick = self._pick
        return NewJob(
            id=self._chance.choice(IDS),
            action=pick(*ACTIONS),
            input=pick("1", "2"),
            queue=pick(*QUEUES),
            workspace=pick(*WORKSPACES),
            priority=pick(0, 0, 0, 1, 7, -3),
            aging_ms=pick(0, 0, 60_000),
            run_at_ms=pick(None, None, self._now_ms() - 5, self._now_ms() + pick(1, 9_000, 90_000)),
            retry=self._chance.choice(RETRIES),
            delivery=pick("at_least_once", "at_least_once", "at_least_once", "at_most_once"),
            key=pick(None, None, "k1", "k2", "k3"),
            key_ttl_ms=pick(1_000, 60_000, 7 * DAY_MS),
            schedule_id=pick(None, "sch_1"),
            correlation_id=pick(None, "r1"),
            metadata=pick(None, '{"kind": 1}'),
        )

    def _claim(self) -> Step:
        pick = self._pick
        self._asker = self._chance.choice(WORKERS)
        request = ClaimRequest(
            self._asker,
            queues=tuple(self._chance.sample(QUEUES, self._chance.randint(1, 3))),
            limit=pick(0, 1, 3, 10),
            lease_ms=pick(1_000, 10_000, 30_000),
            actions=pick(None, None, None, ACTIONS[:1]),
            fair=self._maybe(),
            tokens=pick(1, 2, 10),
            token_batch=pick(1, 2, 10),
            max_token_batch=pick(None, None, 1, 5, 50),
            token_lease_ms=pick(1_000, 10_000),
        )
        own = [token for worker, token in self._tokens if worker == self._asker]
        held = self._some(own, 3) if own and self._maybe() else []
        room = pick(0, 1, 10)

        def claim(store: Store) -> Coroutine[Any, Any, object]:
            theirs = tuple(HeldToken(token, room) for token in self._tokens_of(store, held))
            return store.claim_jobs(replace(request, held=theirs))

        return claim

    def _finish(self) -> Step:
        leases = self._some(self._leases, 4) if self._leases else []
        finishes = [self._end(job) for job in leases]
        return lambda store: store.finish(finishes)

    def _end(self, job: LeasedJob) -> Finish:
        outcome = self._outcome()
        # A worker knows that a recorded start was charged. Only a recorded start is refunded; in
        # this walk it may have been refused.
        is_begun = self._maybe(0.2) or (job.id, job.fence) in self._started
        is_charged = is_begun and not isinstance(outcome, Released)
        end = decide(job, outcome, self._chance.random(), is_charged=is_charged)
        note = self._pick(None, None, '"end"')
        return end._replace(progress=note, isolate=self._maybe(0.1))

    def _start(self) -> Step:
        leases = {job.id: job.fence for job in self._some(self._leases, 6)} if self._leases else {}
        worker = self._chance.choice(WORKERS)
        self._started.update(leases.items())
        return lambda store: store.start_jobs(worker, list(leases.items()))

    def _outcome(self) -> Outcome:
        outcomes: list[Outcome] = [
            Succeeded('"done"'),
            Succeeded(),
            Failed("no luck"),
            Failed("too slow", timed_out=True),
            Failed("no hope", is_final=True),
            Cancelled(),
            Released(),
        ]
        return self._chance.choice(outcomes)

    def _renew(self) -> Step:
        worker = self._chance.choice(WORKERS)
        leases = {job.id: job.fence for job in self._some(self._leases, 6)} if self._leases else {}
        tokens = {token for _, token in self._some(self._tokens, 4)} if self._tokens else set()
        lease_ms, token_ms = self._pick(2_000, 30_000), self._pick(2_000, 10_000)
        return lambda store: store.renew(
            worker, list(leases.items()), lease_ms, self._tokens_of(store, sorted(tokens)), token_ms
        )

    def _release_tokens(self) -> Step:
        if not self._tokens:
            return self._sweep()
        worker, token = self._chance.choice(self._tokens)
        return lambda store: store.release_tokens(worker, self._tokens_of(store, [token]))

    def _note_progress(self) -> Step:
        if not self._leases:
            return self._sweep()
        job = self._chance.choice(self._leases)
        text = str(self._chance.randint(1, 100))
        return lambda store: store.note_progress([ProgressNote(job.id, job.fence, text)])

    def _target(self) -> tuple[JobId, dict[str, Any]]:
        by = {"by": self._pick(None, "ada"), "reason": self._pick(None, "because")}
        return self._chance.choice(IDS), by

    def _cancel(self) -> Step:
        job_id, options = self._target()
        return lambda store: store.cancel_job(job_id, **options)

    def _retry(self) -> Step:
        job_id, options = self._target()
        reset = self._maybe()
        return lambda store: store.retry_job(job_id, reset_attempts=reset, **options)

    def _delete(self) -> Step:
        job_id, options = self._target()
        return lambda store: store.delete_job(job_id, **options)

    def _sweep(self) -> Step:
        limit = self._pick(1, 3, 1_000)
        if self._maybe():
            return lambda store: store.promote_due(limit)
        # Stores may release leases that expire together in any order, so release all of them.
        return lambda store: store.release_expired(1_000)

    def _prune(self) -> Step:
        limit = self._pick(3, 1_000)
        kept = Retention(1_000, 30_000, self._pick(60_000, 2 * DAY_MS), 5_000)
        return lambda store: store.prune(kept, limit)

    def _set_queue(self) -> Step:
        settings = QueueSettings(
            self._chance.choice(QUEUES),
            is_paused=self._maybe(0.25),
            note=self._pick(None, "repairs"),
            job_limit=self._pick(None, None, 0, 1, 4),
            workspace_limit=self._pick(1, 1, 3),
        )
        return lambda store: store.set_queue(settings)

    def _lock(self) -> Step:
        name, owner = self._pick("one", "two"), self._pick("ada", "bob")
        ttl_ms = self._pick(1, 1_000, 20_000)
        verb = self._pick("acquire", "acquire", "extend", "release")
        if verb == "release":
            return lambda store: store.release_lock(name, owner)
        if verb == "extend":
            return lambda store: store.extend_lock(name, owner, ttl_ms)
        return lambda store: store.acquire_lock(name, owner, ttl_ms)

    def _worker(self) -> Step:
        worker = WorkerInfo(self._chance.choice(WORKERS), "host", 1, QUEUES, self._pick(1, 2))
        verb = self._pick("beat", "beat", "leave", "forget", "list")
        if verb == "leave":
            return lambda store: store.remove_worker(worker.id)
        if verb == "forget":
            return lambda store: store.remove_silent_workers(20_000)
        if verb == "list":
            return lambda store: store.list_workers()
        return lambda store: store.beat(worker)

    def _list(self) -> Step:
        which = JobFilter(
            state=self._pick(None, *JobState),
            queue=self._pick(None, *QUEUES),
            workspace=self._pick(None, *WORKSPACES),
            action=self._pick(None, *ACTIONS),
        )
        before = self._pick(None, self._chance.choice(IDS))
        limit = self._pick(1, 5, 100)
        return lambda store: store.list_jobs(which, before=before, limit=limit)


async def dump(store: Store) -> list[object]:
    """Return everything that can be read about jobs."""
    jobs = await store.list_jobs(JobFilter(), limit=1_000)
    known: list[object] = [*jobs, *await store.count_jobs(), *await store.list_queues()]
    for job in jobs:
        known += [*await store.job_events(job.id), *await store.job_attempts(job.id)]
    return [*known, *await store.list_workers()]


async def check_sound(store: Store) -> int:
    """Check the invariants of stored jobs, and return the number of events."""
    count = 0
    for job in await store.list_jobs(JobFilter(), limit=1_000):
        count += await _check_events(store, job)
        await _check_attempts(store, job)
        is_running = job.state is JobState.PROCESSING
        assert (job.worker is not None) == (job.lease_until_ms is not None) == is_running, job
        assert (job.finished_at_ms is not None) == (job.state in FINAL), job
        assert 0 <= job.attempts <= max(job.fence, job.max_attempts), job
    return count


async def _check_events(store: Store, job: Job) -> int:
    """Check that the events form a path of allowed transitions to the state of the job."""
    events = await store.job_events(job.id)
    assert [event.seq for event in events] == list(range(1, job.events + 1)), job
    assert events[0].state in (JobState.SCHEDULED, JobState.QUEUED), job
    for earlier, later in pairwise(events):
        assert later.state in TRANSITIONS[earlier.state], (job.id, earlier, later)
        assert later.at_ms >= earlier.at_ms, (job.id, earlier, later)
    assert events[-1].state is job.state, job
    starts = [event.attempt for event in events if event.state is JobState.PROCESSING]
    assert starts == list(range(1, job.fence + 1)), job
    return len(events)


async def _check_attempts(store: Store, job: Job) -> None:
    """Check that there is one attempt per claim, all closed except that of a running job."""
    attempts = await store.job_attempts(job.id)
    assert [each.number for each in attempts] == list(range(1, job.fence + 1)), job
    is_open = [each.status is None for each in attempts]
    assert is_open == [False] * (job.fence - 1) + [job.state is JobState.PROCESSING] * (
        job.fence > 0
    ), job
    assert is_open == [each.ended_at_ms is None for each in attempts], job
