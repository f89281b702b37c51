"""Checks of jobs whose process froze or died."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from duly.model.jobs import JobState, StartMode
from duly.testing.simulation.record import Record, Violation

_MAY_DIE = frozenset({StartMode.ISOLATED, StartMode.ONCE})
"""Start modes in which a lost worker may end a job: isolated, or at most once (ADR 0027)."""


def none_together(record: Record) -> Iterator[Violation]:
    """Yield attempts of one job that ran at once in one process, for example after a freeze."""
    for earlier, later in record.together:
        fences = f"attempts {earlier.fence} and {later.fence}"
        yield Violation("together", later.job_id, f"{fences} at {later.at_ms} on {later.node}")


def none_dies_for_others(record: Record) -> Iterator[Violation]:
    """Yield jobs that died of a lost worker while running with others, or before their start."""
    for job_id, changes in record.jobs.items():
        for earlier, change in pairwise(changes):
            job = earlier.job
            if job is None or job.state is not JobState.PROCESSING or change.job is None:
                continue
            if record.verbs[change.step] == "finish" or change.job.state is not JobState.DEAD:
                continue
            if job.unstarted == job.fence:
                yield Violation(
                    "innocent", job_id, f"the start of attempt {job.fence} was not recorded"
                )
            elif job.start_mode not in _MAY_DIE:
                yield Violation("innocent", job_id, f"attempt {job.fence} ran alongside others")
