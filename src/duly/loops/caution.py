"""How many careful jobs a worker begins at once.

A job that kills its worker takes down what runs beside it, and whatever had begun pays for that. So
jobs that were lost before come one by one, and one that was lost after it had begun has no other
careful job beside it: the innocent end, and only the guilty pay until they are dead.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from duly.jobs import JobId, LeasedJob
from duly.outcomes import Finish


class Caution:
    """What the last claims tell about the next."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._most = 1
        self._alone: JobId | None = None

    def learn(self, jobs: Sequence[LeasedJob]) -> None:
        """Look at what a claim took."""
        careful = [job for job in jobs if job.careful]
        # At-most-once jobs have one try, whatever happens beside them; the others were lost.
        suspects = [job for job in careful if job.max_attempts > 1]
        if careful:
            self._most = 1 if suspects else self._slots
        for job in suspects:
            if job.attempts > 1:
                self._alone = job.id

    def limit(self, held: Container[object]) -> int:
        """How many careful jobs the next claim may take."""
        return 0 if self._alone in held else self._most

    def ends_with(self, finishes: Sequence[Finish]) -> bool:
        """Whether the job that has to be alone is among these, so that others may come."""
        alone = self._alone
        return alone is not None and any(each.job_id == alone for each in finishes)
