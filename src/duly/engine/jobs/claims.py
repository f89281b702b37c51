"""Claims of jobs: queue by queue, or fairly by tokens of (queue, workspace) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from duly.engine.jobs import jobs, tokens
from duly.engine.jobs.tokens import QUEUE_ITSELF
from duly.engine.kinds import JOB, LINE, QUEUE, WAITING, StoredJob
from duly.engine.transaction import Tx
from duly.model.claims import MAX_JOB_CLAIM, ClaimRequest, Claims, Renewed
from duly.model.jobs import ALL_QUEUES, Job, JobId, JobState, LeasedJob, Token, WorkerId, retry_text
from duly.model.queues import QueueSettings
from duly.rules.checks import check_job_claim
from duly.rules.queue_settings import QueueRules


class Pair(NamedTuple):
    """A (queue, workspace) pair with claimable jobs; pairs sort in the order they are served."""

    served_at_ms: int
    place: int
    queue: str
    workspace: str
    number: int | None
    """Number of a free token; None: all are leased."""


def claim_jobs(tx: Tx, request: ClaimRequest) -> Claims:
    """Release expired leases, promote due jobs, then claim queued jobs."""
    check_job_claim(request)
    claim = _Claim(tx, request, _settings(tx, request.queues), request.limit)
    queues = [each for each in dict.fromkeys(request.queues) if not claim.rules.of(each).is_paused]
    jobs.release_expired(tx)
    jobs.promote_due(tx, queues)
    if request.fair:
        claim.by_pairs(queues)
    else:
        for queue in queues:
            claim.take(claim.candidates(queue))
    wake_at_ms = None if claim.jobs else _next_change_ms(tx, queues)
    return Claims(claim.jobs, claim.holds, wake_at_ms, tx.now_ms)


def renew(
    tx: Tx,
    worker: WorkerId,
    leases: Sequence[tuple[JobId, int]],
    lease_ms: int,
    held: Sequence[Token] = (),
    token_lease_ms: int = 10_000,
) -> Renewed:
    """Extend the leases that are still valid, and the worker's tokens."""
    renewed = jobs.renew_leases(tx, worker, leases, lease_ms)
    tokens.renew_tokens(tx, worker, held, lease_ms, token_lease_ms)
    return renewed


def _settings(tx: Tx, queues: Sequence[str]) -> QueueRules:
    asked = [(each,) for each in dict.fromkeys([*queues, ALL_QUEUES])]
    return QueueRules(tx.peek_many(QUEUE, asked).values())


@dataclass(slots=True)
class _Claim:
    """State of one claim: the jobs taken so far and the room left."""

    tx: Tx
    request: ClaimRequest
    rules: QueueRules
    room: int
    jobs: list[LeasedJob] = field(default_factory=list)
    holds: dict[JobId, tuple[Token, ...]] = field(default_factory=dict)

    def settings(self, queue: str) -> QueueSettings:
        """Return the settings of a queue."""
        return self.rules.of(queue)

    def candidates(self, queue: str) -> list[StoredJob]:
        """Return the queued jobs of a queue whose action the request accepts, in line order."""
        tx, actions = self.tx, self.request.actions
        found: dict[JobId, StoredJob] = {}
        for item in tx.get_many(JOB, _line(tx, queue)).values():
            job = item.job
            is_known = actions is None or job.action in actions
            if job.state is JobState.QUEUED and job.queue == queue and is_known:
                found[job.id] = item
        return sorted(found.values(), key=lambda item: (item.place, item.job.id))

    def free_slot(self, queue: str) -> int | None:
        """Return a free slot of a queue; 0: the queue has no limit; None: all slots are leased."""
        most = self.settings(queue).job_limit
        return 0 if most is None else tokens.free_number(self.tx, queue, QUEUE_ITSELF, most)

    def take(self, items: Sequence[StoredJob], most: int = MAX_JOB_CLAIM) -> list[JobId]:
        """Claim up to `most` jobs in order while there is room and a slot; return their ids."""
        taken: list[JobId] = []
        request = self.request
        for item in items:
            queue = item.job.queue
            slot = self.free_slot(queue)
            if slot is None or len(taken) == most or self.room == 0:
                break
            if slot:
                where = (queue, QUEUE_ITSELF, slot)
                token = tokens.lease(self.tx, *where, request.worker, request.lease_ms)
                self.holds[item.job.id] = (token,)
            self.room -= 1
            leased = jobs.claim_one(self.tx, item.job, request.worker, request.lease_ms)
            self.jobs.append(_leased(leased, item.place))
            taken.append(leased.id)
        return taken

    def by_pairs(self, queues: Sequence[str]) -> None:
        """Claim jobs pair by pair, the longest unserved first, each pair under a token."""
        request = self.request
        pairs = [pair for queue in queues for pair in self._pairs(queue)]
        if len(pairs) == 1 and self._take_on(pairs[0]):
            return
        most, batch = request.shares(len(pairs))
        for pair in sorted(each for each in pairs if each.number is not None)[:most]:
            taken = self.take(self._of_pair(pair), batch)
            if taken and pair.number is not None:
                where = (pair.queue, pair.workspace, pair.number)
                lease_ms = request.token_lease_ms
                self._hold(taken, tokens.lease(self.tx, *where, request.worker, lease_ms))

    def _pairs(self, queue: str) -> list[Pair]:
        """Return the pairs of a queue that have claimable jobs."""
        if self.free_slot(queue) is None:
            return []
        places: dict[str, int] = {}
        for item in self.candidates(queue):
            places.setdefault(item.job.workspace, item.place)
        most = self.settings(queue).workspace_limit
        pairs: list[Pair] = []
        for workspace, place in places.items():
            served_at_ms = tokens.last_served_ms(self.tx, queue, workspace)
            number = tokens.free_number(self.tx, queue, workspace, most)
            pairs.append(Pair(served_at_ms, place, queue, workspace, number))
        return pairs

    def _take_on(self, pair: Pair) -> bool:
        """Claim jobs of the only waiting pair under a token that the worker already holds.

        Return whether any were taken.
        """
        request, tx = self.request, self.tx
        most = self.settings(pair.queue).workspace_limit
        # If the first job's action is unknown to this worker, leave the token to one that knows it.
        own = [
            item.place
            for item in tx.get_many(JOB, _line(tx, pair.queue)).values()
            if item.job.state is JobState.QUEUED and item.job.workspace == pair.workspace
        ]
        if pair.place > min(own, default=pair.place):
            return False
        for token, room in request.held:
            is_of_pair = (token.queue, token.workspace) == (pair.queue, pair.workspace)
            if not is_of_pair or room <= 0 or token.number > most:
                continue
            if tokens.holds(tx, request.worker, token):
                taken = self.take(self._of_pair(pair), room)
                if taken:
                    tokens.keep(tx, request.worker, token, request.token_lease_ms)
                    self._hold(taken, token)
                return bool(taken)
        return False

    def _of_pair(self, pair: Pair) -> list[StoredJob]:
        items = self.candidates(pair.queue)
        return [item for item in items if item.job.workspace == pair.workspace]

    def _hold(self, job_ids: Sequence[JobId], token: Token) -> None:
        for job_id in job_ids:
            self.holds[job_id] = (token, *self.holds.get(job_id, ()))


def _line(tx: Tx, queue: str) -> list[tuple[str | int, ...]]:
    """Return the keys of queued jobs, including those that this transaction has changed."""
    own = [key for key, change in tx.changes(JOB).items() if change.after is not None]
    return list(dict.fromkeys([*tx.find(LINE, queue, limit=MAX_JOB_CLAIM), *own]))


def _leased(job: Job, place: int) -> LeasedJob:
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
        place,
    )


def _next_change_ms(tx: Tx, queues: Sequence[str]) -> int | None:
    """Return when the next job of these queues becomes due or the next lease ends; None: never."""
    if not queues:
        return None
    waiting = [tx.peek_first(WAITING, queue) for queue in queues]
    times: list[int | None] = [item.job.run_at_ms for item in waiting if item is not None]
    times.append(jobs.next_lease_end(tx).at_ms)
    return min((each for each in times if each is not None), default=None)
