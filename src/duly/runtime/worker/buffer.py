"""Jobs claimed ahead, and slots that wait for one.

Holds as much work as the worker starts in a short time, so that claims are large where jobs are
short and other workers are not starved where jobs are long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from duly.model.jobs import JobId, LeasedJob


class JobsByPair:
    """Jobs taken from (queue, workspace) pairs in turn, so that no pair waits for a large one."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], deque[LeasedJob]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LeasedJob]:
        return (job for jobs in self._pairs.values() for job in jobs)

    def extend(self, jobs: Iterable[LeasedJob]) -> None:
        """Add jobs, each at the end of its own pair."""
        for job in jobs:
            pair = (job.queue, job.workspace)
            if pair not in self._pairs:
                self._pairs[pair] = deque()
            self._pairs[pair].append(job)
            self._count += 1

    def popleft(self) -> LeasedJob:
        """Remove and return the next job of the next pair."""
        pair, jobs = next(iter(self._pairs.items()))
        job = jobs.popleft()
        self._count -= 1
        if jobs:
            self._pairs.move_to_end(pair)
        else:
            del self._pairs[pair]
        return job

    def remove(self, job: LeasedJob) -> None:
        """Remove one job."""
        pair = (job.queue, job.workspace)
        self._pairs[pair].remove(job)
        self._count -= 1
        if not self._pairs[pair]:
            del self._pairs[pair]

    def clear(self) -> None:
        """Remove all jobs."""
        self._pairs.clear()
        self._count = 0


class Buffer:
    """A queue between the claims and the slots."""

    def __init__(
        self, most: int, ahead_s: float, wake: Callable[[], None], *, fair: bool = False
    ) -> None:
        self._most = most
        self._ahead_s = ahead_s
        self._wake = wake
        self._jobs: deque[LeasedJob] | JobsByPair = JobsByPair() if fair else deque()
        self._idle: deque[asyncio.Future[LeasedJob]] = deque()
        self._begun = 0
        self._pace = 0.0
        self._low = 0.0
        """With this many jobs or fewer it is time to claim; signalled once after each claim."""

    @property
    def room(self) -> int:
        """The number of jobs to claim."""
        return max(0, len(self._idle) + self._ahead() - len(self._jobs))

    @property
    def is_wanting(self) -> bool:
        """Return whether it is time to claim."""
        if self._idle and not self._jobs:
            return True
        return len(self._jobs) < self._ahead() / 2

    def _ahead(self) -> int:
        return min(int(self._pace * self._ahead_s), self._most)

    def measure(self, seconds: float) -> bool:
        """Update the pace from the jobs started in the last seconds; False: too early to measure.

        A worker that waits for a token claims often, so a short time without starts means little.
        """
        if not self._begun and seconds < self._ahead_s:
            return False
        self._pace = (self._pace + self._begun / max(seconds, 0.001)) / 2
        self._begun = 0
        return True

    def take(self, jobs: Sequence[LeasedJob]) -> None:
        """Add claimed jobs and pass them to waiting slots."""
        self._jobs.extend(jobs)
        self._low = self._ahead() / 2
        while self._idle and self._jobs:
            self._idle.popleft().set_result(self._jobs.popleft())

    def pop(self) -> LeasedJob | None:
        """Return a job for a free slot; None: the buffer is empty."""
        if not self._jobs:
            return None
        self._begun += 1
        if len(self._jobs) <= self._low:
            self._low = -1.0
            self._wake()
        return self._jobs.popleft()

    async def next(self) -> LeasedJob:
        """Return a job for a free slot, waiting until there is one."""
        job = self.pop()
        if job is None:
            free: asyncio.Future[LeasedJob] = asyncio.get_running_loop().create_future()
            self._idle.append(free)
            self._wake()
            job = await free
            self._begun += 1
        return job

    def withdraw(self, job_id: JobId) -> LeasedJob | None:
        """Remove and return a job that has not started; None: it is not in the buffer."""
        for job in self._jobs:
            if job.id == job_id:
                self._jobs.remove(job)
                return job
        return None

    def empty(self) -> list[LeasedJob]:
        """Remove and return all jobs."""
        left = list(self._jobs)
        self._jobs.clear()
        return left
