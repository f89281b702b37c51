"""Memory stores with one bug each in recorded starts or lost jobs, each with the case for it."""

from collections.abc import Sequence

import msgspec

from duly.model.claims import Renewed
from duly.model.jobs import Job, JobId, JobState, StartMode, WorkerId
from duly.model.stored_jobs import MAX_SWEEP
from duly.stores import MemoryStore
from duly.testing.conformance import JobConformance, StoreConformance
from tests.conformance.broken_jobs import BrokenJobs


class ChargesStartsTwice(BrokenJobs):
    async def start_jobs(self, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
        found = await super().start_jobs(worker, leases)
        self.spoil(lambda job: msgspec.structs.replace(job, unstarted=job.fence))
        return found


class StartsForAnybody(BrokenJobs):
    async def start_jobs(self, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
        await super().start_jobs(worker, leases)
        return Renewed([], [])


class BrokenLosses(BrokenJobs):
    """Base of stores that decide wrongly about lost jobs."""

    async def release_expired(self, limit: int = MAX_SWEEP) -> int:
        before = {job.id: job for job, _ in self._tables.jobs.values()}
        count = await super().release_expired(limit)
        self.spoil(lambda job: self.lose(before[job.id], job))
        return count

    def lose(self, before: Job, after: Job) -> Job:
        return after if before.state is after.state else before


class SuspectsWhatWaited(BrokenLosses):
    """Isolates a job that was only claimed ahead."""

    def lose(self, before: Job, after: Job) -> Job:
        was_lost = before.state is not after.state
        mode = StartMode.ISOLATED if was_lost and after.fence > 1 else after.start_mode
        return msgspec.structs.replace(after, start_mode=mode)


class ChargesTheBystander(BrokenLosses):
    """Charges a job that ran beside the one that killed the worker."""

    def lose(self, before: Job, after: Job) -> Job:
        paid = before.start_mode is StartMode.RECORDED and after.start_mode is StartMode.ISOLATED
        return msgspec.structs.replace(after, attempts=after.attempts + paid)


class RepeatsAtMostOnce(BrokenLosses):
    def lose(self, before: Job, after: Job) -> Job:
        if before.delivery == "at_most_once" and after.state is JobState.DEAD:
            return msgspec.structs.replace(after, state=JobState.QUEUED)
        return after


BROKEN_STARTS: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (ChargesStartsTwice, JobConformance, "test_start_is_charged_once"),
    (StartsForAnybody, JobConformance, "test_void_starts_are_refused"),
    (SuspectsWhatWaited, JobConformance, "test_suspects_are_those_that_had_begun"),
    (ChargesTheBystander, JobConformance, "test_suspects_are_those_that_had_begun"),
    (
        RepeatsAtMostOnce,
        JobConformance,
        "test_at_most_once_lost_after_its_start_is_dead",
    ),
]
