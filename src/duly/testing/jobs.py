"""Run due jobs inside a test, without background loops or leftover threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from duly.app import Duly
from duly.clock import SystemClock
from duly.engine.ids import new_id
from duly.flows.flow import queues_of
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, JobState, LeasedJob, WorkerId, check_queues
from duly.rules.outcomes import Finish, decide
from duly.runtime.worker.admission import Admission
from duly.runtime.worker.job_context import SlotContext
from duly.runtime.worker.post_run import PostRunActions
from duly.runtime.worker.slots import Slot
from duly.runtime.worker.starts import Starts

MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Drained:
    """The attempts that drain() ran, in order."""

    ends: tuple[Finish, ...]

    def __len__(self) -> int:
        return len(self.ends)

    def ids(self, state: JobState = JobState.SUCCEEDED) -> list[JobId]:
        """Return the ids of jobs whose attempt ended in `state`."""
        return [end.job_id for end in self.ends if end.state is state]


async def drain(
    app: Duly, *, queues: Sequence[str] | None = None, most: int = MOST_JOBS
) -> Drained:
    """Run due jobs one after another, including jobs they enqueue, until none is left.

    Without `queues`, it serves the same queues as a worker by default: `default` and those that the
    application's actions declare. It stops after `most` jobs.

    A failed attempt waits for its retry time: advance the clock and drain again.
    """
    worker = WorkerId(new_id("worker_"))
    request = ClaimRequest(
        worker=worker,
        queues=queues_of(app.actions) if queues is None else check_queues(queues),
        limit=1,
        actions=tuple(sorted(app.actions)),
    )
    ends: list[Finish] = []
    with ThreadPoolExecutor(1, "duly-drain") as threads:
        notes: dict[LeasedJob, str] = {}
        calls = app.calls
        after = PostRunActions(calls)
        noting = notes.__setitem__
        start = Starts(app.store, worker).record
        bench = SlotContext(
            app.actions, SystemClock(), threads, noting, start, calls, after.ask_interval
        )
        slot = Slot(bench, Admission(calls, threads))
        while len(ends) < most:
            claims = await app.store.claim_jobs(request)
            if not claims.jobs:
                break
            for job in claims.jobs:
                outcome = await slot.run(job)
                note = notes.pop(job, None)
                if outcome is not None:
                    end = decide(job, outcome, is_charged=slot.is_charged)
                    ends.append(end._replace(progress=note))
                    after.ended(ends[-1:], await app.store.finish(ends[-1:]))
                    await after.settle()
                await app.store.release_tokens(worker, claims.holds.get(job.id, ()))
    return Drained(tuple(ends))
