"""Claims of jobs in memory: queue by queue, or fairly by tokens; and the renewal of leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from duly.events import Attempt
from duly.job_store import (
    MAX_JOB_CLAIM,
    MAX_SWEEP,
    ClaimRequest,
    Claims,
    QueueSettings,
    Renewed,
)
from duly.jobs import (
    Job,
    JobId,
    JobState,
    LeasedJob,
    StartMode,
    Token,
    WorkerId,
    retry_text,
)
from duly.queue_rules import QueueRules
from duly.stores.checks import check_job_claim
from duly.stores.memory import job_tokens
from duly.stores.memory.job_moves import held, move, put
from duly.stores.memory.job_sweeps import is_waiting, promote_due, release_expired
from duly.stores.memory.job_tokens import QUEUE_ITSELF, free_number
from duly.stores.memory.tables import Tables


class Pair(NamedTuple):
    """A (queue, workspace) with claimable jobs, sorted as pairs are served."""

    served_at_ms: int
    place: int
    queue: str
    workspace: str
    number: int | None
    """Of its free token; None: all are leased."""


@dataclass(slots=True)
class Taking:
    """A claim in the making."""

    tables: Tables
    now_ms: int
    request: ClaimRequest
    limit: int
    jobs: list[LeasedJob] = field(default_factory=list)
    holds: dict[JobId, tuple[Token, ...]] = field(default_factory=dict)

    def settings(self, queue: str) -> QueueSettings:
        """What is decided about a queue."""
        return QueueRules(self.tables.queues.values()).of(queue)

    def free_slot(self, queue: str) -> int | None:
        """A slot that a job may be claimed under; 0: none is needed; None: all are leased."""
        most = self.settings(queue).job_limit
        if most is None:
            return 0
        return free_number(self.tables, self.now_ms, queue, QUEUE_ITSELF, most)

    def candidates(self, queue: str) -> list[tuple[int, JobId, Job]]:
        """Jobs of a queue that this request could take, in order, with their places."""
        actions = self.request.actions
        return sorted(
            (place, job.id, job)
            for job, place in self.tables.jobs.values()
            if job.state == JobState.QUEUED
            and job.queue == queue
            and (actions is None or job.action in actions)
        )


def claim(tables: Tables, now_ms: int, request: ClaimRequest) -> Claims:
    """Rescue, promote, then take."""
    check_job_claim(request)
    taking = Taking(tables, now_ms, request, request.limit)
    queues = [each for each in dict.fromkeys(request.queues) if not taking.settings(each).is_paused]
    release_expired(tables, now_ms, MAX_SWEEP)
    promote_due(tables, now_ms, MAX_SWEEP, queues)
    if request.fair:
        _take_fairly(taking, queues)
    else:
        for queue in queues:
            _take(taking, [job for _, _, job in taking.candidates(queue)])
    wake_at_ms = None if taking.jobs else _next_change_ms(tables, queues)
    return Claims(taking.jobs, taking.holds, wake_at_ms, now_ms)


def _take_fairly(taking: Taking, queues: Sequence[str]) -> None:
    request, tables, now_ms = taking.request, taking.tables, taking.now_ms
    pairs = [pair for queue in queues for pair in _pairs(taking, queue)]
    if len(pairs) == 1 and _take_on(taking, pairs[0]):
        return
    most, batch = request.shares(len(pairs))
    for pair in sorted(each for each in pairs if each.number is not None)[:most]:
        taken = _take(taking, _jobs_of(taking, pair), batch)
        if taken and pair.number is not None:
            key = (pair.queue, pair.workspace, pair.number)
            token = job_tokens.lease(tables, now_ms, key, request.worker, request.token_lease_ms)
            _hold(taking, taken, token)


def _take_on(taking: Taking, pair: Pair) -> bool:
    """Take jobs of the only pair that waits under a token that the asker holds already."""
    request, tables, now_ms = taking.request, taking.tables, taking.now_ms
    most = taking.settings(pair.queue).workspace_limit
    waiting = [
        place
        for job, place in tables.jobs.values()
        if (job.state, job.queue, job.workspace) == (JobState.QUEUED, pair.queue, pair.workspace)
    ]
    # The first job may be one that the asker does not know: a worker that does needs the token.
    if pair.place > min(waiting):
        return False
    for token, room in request.held:
        is_of_pair = (token.queue, token.workspace) == (pair.queue, pair.workspace)
        if not is_of_pair or room <= 0 or token.number > most:
            continue
        if job_tokens.holds(tables, now_ms, request.worker, token):
            taken = _take(taking, _jobs_of(taking, pair), room)
            if taken:
                job_tokens.keep(tables, now_ms, token, request.token_lease_ms)
                _hold(taking, taken, token)
            return bool(taken)
    return False


def _jobs_of(taking: Taking, pair: Pair) -> list[Job]:
    return [job for *_, job in taking.candidates(pair.queue) if job.workspace == pair.workspace]


def _hold(taking: Taking, job_ids: Sequence[JobId], token: Token) -> None:
    for job_id in job_ids:
        taking.holds[job_id] = (token, *taking.holds.get(job_id, ()))


def _pairs(taking: Taking, queue: str) -> list[Pair]:
    """Return the pairs of a queue that have something to take."""
    if taking.free_slot(queue) is None:
        return []
    places: dict[str, int] = {}
    for place, _, job in taking.candidates(queue):
        places.setdefault(job.workspace, place)
    most, tables = taking.settings(queue).workspace_limit, taking.tables
    numbers = {each: free_number(tables, taking.now_ms, queue, each, most) for each in places}
    return [
        Pair(job_tokens.served_at_ms(tables, queue, each), places[each], queue, each, number)
        for each, number in numbers.items()
    ]


def _take(taking: Taking, jobs: Sequence[Job], most: int = MAX_JOB_CLAIM) -> list[JobId]:
    """Take jobs in order while there is room and a slot; gives their ids."""
    taken: list[JobId] = []
    for job in jobs:
        slot = taking.free_slot(job.queue)
        if slot is None or len(taken) == most or taking.limit == 0:
            break
        if slot:
            taking.holds[job.id] = (_lease_slot(taking, job.queue, slot),)
        taking.limit -= 1
        taking.jobs.append(_start(taking.tables, taking.now_ms, taking.request, job))
        taken.append(job.id)
    return taken


def _lease_slot(taking: Taking, queue: str, number: int) -> Token:
    key = (queue, QUEUE_ITSELF, number)
    request = taking.request
    return job_tokens.lease(taking.tables, taking.now_ms, key, request.worker, request.lease_ms)


def _start(tables: Tables, now_ms: int, request: ClaimRequest, job: Job) -> LeasedJob:
    """Lease one job, with its attempt and event."""
    lease_until_ms = now_ms + request.lease_ms
    job = move(
        tables,
        now_ms,
        job,
        [JobState.PROCESSING],
        actor=request.worker,
        fence=job.fence + 1,
        unstarted=None if job.start_mode is StartMode.AHEAD else job.fence + 1,
        worker=request.worker,
        lease_until_ms=lease_until_ms,
    )
    attempt = Attempt(job.id, job.fence, request.worker, now_ms, None, None, None)
    tables.attempts[job.id] += (attempt,)
    return LeasedJob(
        job.id,
        job.action,
        job.input,
        job.queue,
        job.workspace,
        job.scope,
        job.attempts,
        job.max_attempts,
        int(job.start_mode),
        job.fence,
        retry_text(job.retry),
        job.timeout_ms,
        job.schedule_id,
        job.nominal_ms,
        job.correlation_id,
        tables.jobs[job.id].place,
    )


def _next_change_ms(tables: Tables, queues: Sequence[str]) -> int | None:
    """When a job of these queues becomes due, or a lease of any ends."""
    jobs = [job for job, _ in tables.jobs.values()]
    due = [job.run_at_ms for job in jobs if is_waiting(job) and job.queue in queues]
    ends = [job.lease_until_ms for job in jobs if job.lease_until_ms is not None]
    return min(due + ends, default=None) if queues else None


def start(tables: Tables, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
    """Record that handlers are about to be called, and charge the attempts."""
    found = Renewed([], [])
    for job_id, fence in leases:
        job = held(tables, job_id, fence)
        if job is None or job.worker != worker:
            found.lost.append(job_id)
        elif job.cancel_asked:
            found.cancel.append(job_id)
        elif job.unstarted == fence:
            put(tables, replace(job, unstarted=None, attempts=job.attempts + 1))
    return found


def renew(
    tables: Tables,
    now_ms: int,
    worker: WorkerId,
    leases: Sequence[tuple[JobId, int]],
    lease_ms: int,
) -> Renewed:
    """Extend leases that still stand."""
    renewed = Renewed([], [])
    for job_id, fence in leases:
        job = held(tables, job_id, fence)
        if job is None or job.worker != worker:
            renewed.lost.append(job_id)
            continue
        put(tables, replace(job, lease_until_ms=now_ms + lease_ms))
        if job.cancel_asked:
            renewed.cancel.append(job_id)
    return renewed
