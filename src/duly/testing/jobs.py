"""Running jobs inside a test: no loops, no threads to wait for, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from duly.app import Duly
from duly.clock import SystemClock
from duly.ids import new_id
from duly.job_store import ClaimRequest
from duly.jobs import DEFAULT_QUEUE, JobId, JobState, LeasedJob, WorkerId, check_queues
from duly.loops.admission import Admission
from duly.loops.consequences import Consequences
from duly.loops.job_context import Bench
from duly.loops.slots import Slot
from duly.outcomes import Finish, decide

MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Drained:
    """What drain() ran, in order."""

    ends: tuple[Finish, ...]

    def __len__(self) -> int:
        return len(self.ends)

    def ids(self, state: JobState = JobState.SUCCEEDED) -> list[JobId]:
        """Jobs whose attempt ended so."""
        return [end.job_id for end in self.ends if end.state is state]


async def drain(
    app: Duly, *, queues: Sequence[str] = (DEFAULT_QUEUE,), most: int = MOST_JOBS
) -> Drained:
    """Run every job that is due, one after another, also those that the jobs enqueue.

    A failed attempt waits for its retry time: advance the clock and drain again.
    """
    worker = WorkerId(new_id("worker_"))
    request = ClaimRequest(
        worker=worker, queues=check_queues(queues), limit=1, actions=tuple(sorted(app.actions))
    )
    ends: list[Finish] = []
    with ThreadPoolExecutor(1, "duly-drain") as threads:
        notes: dict[LeasedJob, str] = {}
        calls = app.calls
        after = Consequences(calls)
        noting = notes.__setitem__
        bench = Bench(app.actions, SystemClock(), threads, noting, calls, after.ask_interval)
        slot = Slot(bench, Admission(calls, threads))
        while len(ends) < most:
            claims = await app.store.claim_jobs(request)
            if not claims.jobs:
                break
            for job in claims.jobs:
                outcome = await slot.run(job)
                await asyncio.gather(
                    *(app.store.note_progress(j.id, j.fence, text) for j, text in notes.items())
                )
                notes.clear()
                if outcome is not None:
                    ends.append(decide(job, outcome))
                    after.ended(ends[-1:], await app.store.finish(ends[-1:]))
                    await after.settle()
                await app.store.release_tokens(worker, claims.holds.get(job.id, ()))
    return Drained(tuple(ends))
