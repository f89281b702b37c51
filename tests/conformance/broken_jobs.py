"""Memory stores with one bug each in jobs, each with the case that notices it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import msgspec

from duly.engine.kinds import StoredJob
from duly.model.claims import ClaimRequest, Claims, NextLeaseEnd, Renewed
from duly.model.events import JobEvent, attempts_of
from duly.model.jobs import ALL_QUEUES, Job, JobId, JobState, NewJob, StartMode, Token, WorkerId
from duly.model.locks import Lock
from duly.model.queues import Line, QueueSettings, WorkerInfo
from duly.model.stored_jobs import MAX_SWEEP, Enqueued, JobFilter, JobRefused, KeyTaken, Retention
from duly.rules.outcomes import Finish
from duly.stores import MemoryStore
from duly.testing.conformance import (
    FairnessConformance,
    JobConformance,
    LockConformance,
    StoreConformance,
)
from duly.testing.conformance.jobs.samples import LEASE_MS


class BrokenJobs(MemoryStore):
    """Base of stores that change jobs after a verb."""

    def spoil(self, change: Callable[[Job], Job]) -> None:
        """Rewrite every job."""
        for job_id, (job, place) in self._tables.jobs.items():
            self._tables.jobs[job_id] = StoredJob(change(job), place)


class BrokenFinishes(BrokenJobs):
    """Base of stores that change the arguments of finish()."""

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        return await super().finish([self.changed(each) for each in finishes])

    def changed(self, finish: Finish) -> Finish:
        return finish


class BelievesLateHolders(BrokenFinishes):
    def changed(self, finish: Finish) -> Finish:
        stored = self._tables.jobs.get(finish.job_id)
        return finish if stored is None else finish._replace(fence=stored.job.fence)


class ChargesReleases(BrokenFinishes):
    def changed(self, finish: Finish) -> Finish:
        return finish._replace(charge=1) if finish.status == "released" else finish


class SkipsFailed(BrokenFinishes):
    """Writes processing to dead as one event, as an earlier design did."""

    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        void = await super().finish(finishes)
        for job_id, events in self._tables.job_events.items():
            kept = tuple(each for each in events if each.state is not JobState.FAILED)
            self._tables.job_events[job_id] = kept
        return void


class RetriesAtOnce(BrokenFinishes):
    def changed(self, finish: Finish) -> Finish:
        return finish if finish.delay_ms is None else finish._replace(delay_ms=0)


class ForgetsErrors(BrokenFinishes):
    def changed(self, finish: Finish) -> Finish:
        return finish._replace(error=None)


class KeepsTheLeaseOfTheEnded(BrokenJobs):
    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        before = {job.id: job for job, _ in self._tables.jobs.values()}
        void = await super().finish(finishes)
        self.spoil(lambda job: msgspec.structs.replace(job, worker=before[job.id].worker))
        return void


class IgnoresCancelRequests(BrokenJobs):
    async def finish(self, finishes: Sequence[Finish]) -> list[JobId]:
        self.spoil(lambda job: msgspec.structs.replace(job, cancel_asked=False))
        return await super().finish(finishes)


class CancelsTheRunning(BrokenJobs):
    async def cancel_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        answer = await super().cancel_job(job_id, by=by, reason=reason)
        self.spoil(
            lambda job: (
                msgspec.structs.replace(job, state=JobState.CANCELLED) if job.cancel_asked else job
            )
        )
        return await self.get_job(job_id) or answer


class RescuesSilently(BrokenJobs):
    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        before = dict(self._tables.job_events)
        count = await super().release_expired(limit)
        self._tables.job_events = before
        return count


class ForgetsRenewals(MemoryStore):
    """Reports the end that a lease had before its renewals."""

    async def next_lease_end(self) -> NextLeaseEnd:
        end = await super().next_lease_end()
        if end.at_ms is None:
            return end
        return end._replace(at_ms=min(end.at_ms, *_first_lease_ends(self, {None})))


class CountsEndedJobs(MemoryStore):
    """Counts leases of jobs that have ended."""

    async def next_lease_end(self) -> NextLeaseEnd:
        end = await super().next_lease_end()
        ends = _first_lease_ends(self, {None, "succeeded", "failed"})
        return end._replace(at_ms=min(ends, default=end.at_ms))


def _first_lease_ends(store: MemoryStore, statuses: Collection[str | None]) -> list[int]:
    """Return when the leases of the newest attempts end without any renewal."""
    tries = [attempts_of(events) for events in store._tables.job_events.values()]
    newest = [attempts[-1] for attempts in tries if attempts]
    return [each.started_at_ms + LEASE_MS for each in newest if each.status in statuses]


class LeavesLostAttemptsOpen(BrokenJobs):
    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        claims = await super().claim_jobs(request)
        for job_id, events in self._tables.job_events.items():
            self._tables.job_events[job_id] = tuple(
                each for each in events if each.ended_as != "lost"
            )
        return claims


class ChargesTheFirstLoss(BrokenJobs):
    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        states = {job.id: job.state for job, _ in self._tables.jobs.values()}
        count = await super().release_expired(limit)

        def charge(job: Job) -> Job:
            lost = states[job.id] is not job.state
            return msgspec.structs.replace(job, attempts=job.attempts + lost)

        self.spoil(charge)
        return count


class NeverSuspectsTheLost(BrokenJobs):
    """Claims a job whose worker keeps crashing forever."""

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        if self._tables.jobs and next(iter(self._tables.jobs.values())).job.fence > 9:
            raise AssertionError("the job is claimed forever")
        await self.release_expired()
        self.spoil(lambda job: msgspec.structs.replace(job, start_mode=StartMode.AHEAD))
        return await super().claim_jobs(request)


class BrokenClaims(BrokenJobs):
    """Base of stores that change the request of claim_jobs()."""

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        return await super().claim_jobs(self.ask(request))

    def ask(self, request: ClaimRequest) -> ClaimRequest:
        return request


class ServesAtMostOnceLast(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        for job_id, (job, place) in self._tables.jobs.items():
            moved = place + (job.delivery == "at_most_once") * 10**15
            self._tables.jobs[job_id] = StoredJob(job, moved)
        return request


class TakesUnknownActions(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        return replace(request, actions=None)


class SortsQueuesByName(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        return replace(request, queues=tuple(sorted(request.queues)))


class IsNeverFair(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        return replace(request, fair=False)


class IgnoresTheBatchOfAToken(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        return replace(request, token_batch=1_000)


class RemembersNoTurn(BrokenClaims):
    """Serves the pair that waits longest again and again."""

    def ask(self, request: ClaimRequest) -> ClaimRequest:
        for key, token in self._tables.tokens.items():
            self._tables.tokens[key] = token._replace(served_at_ms=0)
        return request


class IgnoresPriority(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        for job_id, (job, _) in self._tables.jobs.items():
            self._tables.jobs[job_id] = StoredJob(job, job.run_at_ms)
        return request


class ServesPausedQueues(MemoryStore):
    async def set_queue(self, settings: QueueSettings) -> None:
        await super().set_queue(replace(settings, is_paused=False))


class IgnoresAPauseOfAllQueues(MemoryStore):
    async def set_queue(self, settings: QueueSettings) -> None:
        is_one = settings.queue != ALL_QUEUES
        await super().set_queue(replace(settings, is_paused=settings.is_paused and is_one))


class IgnoresTheLimitOfAQueue(MemoryStore):
    async def set_queue(self, settings: QueueSettings) -> None:
        await super().set_queue(replace(settings, job_limit=None))


class ClaimsTwice(BrokenJobs):
    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        before = dict(self._tables.jobs)
        claims = await super().claim_jobs(request)
        self._tables.jobs = before
        return claims


class PromotesEarly(BrokenJobs):
    async def promote_due(self, limit: int = MAX_SWEEP) -> int:
        now_ms = await self.now_ms()
        self.spoil(lambda job: msgspec.structs.replace(job, run_at_ms=min(job.run_at_ms, now_ms)))
        return await super().promote_due(limit)


class KeepsKeysForEver(MemoryStore):
    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        for key, held in self._tables.keys.items():
            self._tables.keys[key] = held._replace(expires_at_ms=2**62)
        return await super().insert_jobs(jobs)


class IgnoresTheInputOfAKey(MemoryStore):
    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        answers = await super().insert_jobs(jobs)
        return [
            Enqueued(each.job_id, created=False) if len(each) == 1 else each for each in answers
        ]


class ForgetsKeysWithTheirJobs(MemoryStore):
    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        count = await super().prune(retention, limit)
        for key, held in list(self._tables.keys.items()):
            if held.job_id not in self._tables.jobs:
                del self._tables.keys[key]
        return count


class OverwritesJobs(MemoryStore):
    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        for job in jobs:
            self._tables.jobs.pop(job.id, None)
        return await super().insert_jobs(jobs)


class PrunesTheRunning(MemoryStore):
    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        running = [
            job.id for job, _ in self._tables.jobs.values() if job.state is JobState.PROCESSING
        ]
        for job_id in running:
            del self._tables.jobs[job_id]
        return await super().prune(retention, limit) + len(running)


class KeepsEventsForEver(MemoryStore):
    async def prune(self, retention: Retention, limit: int = MAX_SWEEP) -> int:
        events = dict(self._tables.job_events)
        count = await super().prune(retention, limit)
        self._tables.job_events = events
        return count


class KeepsTokensUntilTheirEnd(MemoryStore):
    async def release_tokens(self, worker: WorkerId, tokens: Sequence[Token]) -> None:
        del worker, tokens


class ReleasesAnybodysTokens(MemoryStore):
    async def release_tokens(self, worker: WorkerId, tokens: Sequence[Token]) -> None:
        del worker
        for token in tokens:
            self._tables.tokens.pop(token[:3], None)


class RenewsForAnybody(MemoryStore):
    async def renew(
        self,
        worker: WorkerId,
        leases: Sequence[tuple[JobId, int]],
        lease_ms: int,
        tokens: Sequence[Token] = (),
        token_lease_ms: int = 10_000,
    ) -> Renewed:
        for job, _ in list(self._tables.jobs.values()):
            worker = job.worker or worker
        return await super().renew(worker, leases, lease_ms, tokens, token_lease_ms)


class RetryKeepsAttempts(MemoryStore):
    async def retry_job(
        self,
        job_id: JobId,
        *,
        reset_attempts: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> Job | JobRefused:
        del reset_attempts
        return await super().retry_job(job_id, reset_attempts=False, by=by, reason=reason)


class RepeatsEvents(MemoryStore):
    """Writes a second event when the same state is requested twice."""

    async def delete_job(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None
    ) -> Job | JobRefused:
        answer = await super().delete_job(job_id, by=by, reason=reason)
        if isinstance(answer, Job):
            self._tables.job_events[job_id] += (self._tables.job_events[job_id][-1],)
        return answer


class SortsEventsByState(MemoryStore):
    async def job_events(self, job_id: JobId, limit: int = 1_000) -> list[JobEvent]:
        events = await super().job_events(job_id, limit)
        return sorted(events, key=lambda each: (each.at_ms, each.state))


class ListsOldestFirst(MemoryStore):
    async def list_jobs(
        self, which: JobFilter, *, before: JobId | None = None, limit: int = 100
    ) -> list[Job]:
        return (await super().list_jobs(which, before=before, limit=limit))[::-1]


class StealsLocks(MemoryStore):
    async def acquire_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        held = self._tables.locks.get(name)
        if held is not None:
            self._tables.locks[name] = held._replace(until_ms=0)
        return await super().acquire_lock(name, owner, ttl_ms)


class ForgetsLocks(MemoryStore):
    """Starts a released lock at fence 1 again."""

    async def release_lock(self, name: str, owner: str) -> bool:
        released = await super().release_lock(name, owner)
        if released:
            del self._tables.locks[name]
        return released


class ReleasesAnybodysLock(MemoryStore):
    async def release_lock(self, name: str, owner: str) -> bool:
        held = self._tables.locks.get(name)
        return await super().release_lock(name, (held and held.owner) or owner)


class BelievesTheWorkersClock(MemoryStore):
    async def beat(self, worker: WorkerInfo) -> None:
        await super().beat(worker)
        self._tables.workers[worker.id] = worker


class ForgetsWhichActionsAWorkerHas(MemoryStore):
    async def beat(self, worker: WorkerInfo) -> None:
        await super().beat(replace(worker, actions=None))


class CountsTheOrdinaryLineOnly(MemoryStore):
    async def count_line(self, look: int = 1_000, limit: int = 1_000) -> Line:
        ahead = StartMode.AHEAD
        others = {key for key, (job, _) in self._tables.jobs.items() if job.start_mode != ahead}
        kept = {key: self._tables.jobs.pop(key) for key in others}
        found = await super().count_line(look, limit)
        self._tables.jobs.update(kept)
        return found


class CountsTheWholeLine(MemoryStore):
    async def count_line(self, look: int = 1_000, limit: int = 1_000) -> Line:
        await super().count_line(look, limit)
        return await super().count_line(1_000, limit)


BROKEN_JOBS: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (BelievesLateHolders, JobConformance, "test_late_holder_is_refused"),
    (ChargesReleases, JobConformance, "test_release_is_never_charged"),
    (SkipsFailed, JobConformance, "test_final_failure_is_dead_at_once"),
    (RetriesAtOnce, JobConformance, "test_failure_passes_through_failed"),
    (ForgetsErrors, JobConformance, "test_attempts_are_numbered_and_closed_until_dead"),
    (KeepsTheLeaseOfTheEnded, JobConformance, "test_success_ends_a_job"),
    (IgnoresCancelRequests, JobConformance, "test_failure_after_a_wish_to_cancel_ends_it"),
    (CancelsTheRunning, JobConformance, "test_running_jobs_are_asked_to_stop"),
    (ForgetsRenewals, JobConformance, "test_renewed_leases_end_later"),
    (CountsEndedJobs, JobConformance, "test_no_lease_has_no_end"),
    (RescuesSilently, JobConformance, "test_first_loss_is_uncharged_and_marked"),
    (
        LeavesLostAttemptsOpen,
        JobConformance,
        "test_lost_jobs_are_rescued_and_claimed_at_once",
    ),
    (ChargesTheFirstLoss, JobConformance, "test_first_loss_is_uncharged_and_marked"),
    (NeverSuspectsTheLost, JobConformance, "test_poison_dies_at_the_cap"),
    (ServesAtMostOnceLast, JobConformance, "test_at_most_once_jobs_keep_their_place"),
    (TakesUnknownActions, JobConformance, "test_only_named_actions_are_taken"),
    (SortsQueuesByName, JobConformance, "test_queues_are_served_in_the_order_asked"),
    (IgnoresPriority, JobConformance, "test_order_is_priority_then_time_then_id"),
    (ServesPausedQueues, JobConformance, "test_paused_queues_are_not_served"),
    (
        IgnoresAPauseOfAllQueues,
        JobConformance,
        "test_a_pause_of_all_queues_holds_for_every_queue",
    ),
    (ClaimsTwice, JobConformance, "test_second_claim_is_empty_for_jobs"),
    (PromotesEarly, JobConformance, "test_due_jobs_are_queued"),
    (KeepsKeysForEver, JobConformance, "test_keys_run_out"),
    (IgnoresTheInputOfAKey, JobConformance, "test_same_key_with_another_input_is_taken"),
    (ForgetsKeysWithTheirJobs, JobConformance, "test_keys_outlive_their_jobs"),
    (OverwritesJobs, JobConformance, "test_id_that_exists_is_left_alone"),
    (PrunesTheRunning, JobConformance, "test_running_and_waiting_jobs_are_never_removed"),
    (KeepsEventsForEver, JobConformance, "test_events_and_attempts_go_with_the_job"),
    (RenewsForAnybody, JobConformance, "test_only_the_holder_renews"),
    (RetryKeepsAttempts, JobConformance, "test_retry_begins_anew"),
    (RepeatsEvents, JobConformance, "test_delete_repeated_adds_nothing"),
    (SortsEventsByState, JobConformance, "test_events_of_one_millisecond_are_in_order"),
    (ListsOldestFirst, JobConformance, "test_pages_go_from_the_newest"),
    (BelievesTheWorkersClock, JobConformance, "test_times_of_a_worker_are_the_stores"),
    (
        ForgetsWhichActionsAWorkerHas,
        JobConformance,
        "test_times_of_a_worker_are_the_stores",
    ),
    (
        CountsTheOrdinaryLineOnly,
        JobConformance,
        "test_lines_are_counted_by_queue_and_action",
    ),
    (CountsTheWholeLine, JobConformance, "test_lines_are_counted_up_to_a_number"),
    (IsNeverFair, FairnessConformance, "test_workspace_with_a_thousand_jobs_delays_nobody"),
    (IgnoresTheBatchOfAToken, FairnessConformance, "test_batches_and_limits_are_kept"),
    (RemembersNoTurn, FairnessConformance, "test_least_recently_served_pair_is_first"),
    (IgnoresTheLimitOfAQueue, FairnessConformance, "test_slots_bound_what_is_claimed"),
    (KeepsTokensUntilTheirEnd, FairnessConformance, "test_released_tokens_are_free_at_once"),
    (ReleasesAnybodysTokens, FairnessConformance, "test_only_the_owner_releases"),
    (StealsLocks, LockConformance, "test_held_lock_is_not_acquired"),
    (ForgetsLocks, LockConformance, "test_fence_grows_after_a_release"),
    (ReleasesAnybodysLock, LockConformance, "test_only_the_owner_releases_a_lock"),
]
