"""Jobs claimed ahead, and slots that wait for one.

Holds a little work at the worker's own pace, so that claims are large where jobs are short and
nothing is hoarded where they are long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from duly.model.jobs import JobId, LeasedJob


class JobsByPair:
    """Jobs that (queue, workspace) pairs get out in turn: one with few waits for none with many."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], deque[LeasedJob]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LeasedJob]:
        return (job for jobs in self._pairs.values() for job in jobs)

    def extend(self, jobs: Iterable[LeasedJob]) -> None:
        """Add jobs, each behind those of its own pair."""
        for job in jobs:
            pair = (job.queue, job.workspace)
            if pair not in self._pairs:
                self._pairs[pair] = deque()
            self._pairs[pair].append(job)
            self._count += 1

    def popleft(self) -> LeasedJob:
        """Take the next job of the next pair."""
        pair, jobs = next(iter(self._pairs.items()))
        job = jobs.popleft()
        self._count -= 1
        if jobs:
            self._pairs.move_to_end(pair)
        else:
            del self._pairs[pair]
        return job

    def remove(self, job: LeasedJob) -> None:
        """Take one job out."""
        pair = (job.queue, job.workspace)
        self._pairs[pair].remove(job)
        self._count -= 1
        if not self._pairs[pair]:
            del self._pairs[pair]

    def clear(self) -> None:
        """Take everything out."""
        self._pairs.clear()
        self._count = 0


class Buffer:
    """Between the claims and the slots."""

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
        """With fewer jobs than this it is time to claim; said once after each claim."""

    @property
    def room(self) -> int:
        """How many jobs to claim."""
        return max(0, len(self._idle) + self._ahead() - len(self._jobs))

    @property
    def is_wanting(self) -> bool:
        """Whether it is time to claim."""
        if self._idle and not self._jobs:
            return True
        return len(self._jobs) < self._ahead() / 2

    def _ahead(self) -> int:
        return min(int(self._pace * self._ahead_s), self._most)

    def measure(self, seconds: float) -> bool:
        """Learn the pace from what began in the last seconds; False: it is too early to tell.

        A worker that waits for a token asks often. That nothing began meanwhile says little.
        """
        if not self._begun and seconds < self._ahead_s:
            return False
        self._pace = (self._pace + self._begun / max(seconds, 0.001)) / 2
        self._begun = 0
        return True

    def take(self, jobs: Sequence[LeasedJob]) -> None:
        """Keep claimed jobs, and hand them to the slots that wait."""
        self._jobs.extend(jobs)
        self._low = self._ahead() / 2
        while self._idle and self._jobs:
            self._idle.popleft().set_result(self._jobs.popleft())

    def pop(self) -> LeasedJob | None:
        """A job for a slot that is free, if one waits."""
        if not self._jobs:
            return None
        self._begun += 1
        if len(self._jobs) <= self._low:
            self._low = -1.0
            self._wake()
        return self._jobs.popleft()

    async def next(self) -> LeasedJob:
        """A job for a slot that is free, as soon as there is one."""
        job = self.pop()
        if job is None:
            free: asyncio.Future[LeasedJob] = asyncio.get_running_loop().create_future()
            self._idle.append(free)
            self._wake()
            job = await free
            self._begun += 1
        return job

    def withdraw(self, job_id: JobId) -> LeasedJob | None:
        """Take one job out, where it has not begun."""
        for job in self._jobs:
            if job.id == job_id:
                self._jobs.remove(job)
                return job
        return None

    def empty(self) -> list[LeasedJob]:
        """Take everything out."""
        left = list(self._jobs)
        self._jobs.clear()
        return left
