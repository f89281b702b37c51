"""What must hold when processes stand still or die: for the jobs that they had."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from duly.model.jobs import JobState, StartMode
from duly.testing.simulation.record import Record, Violation

_MAY_DIE = frozenset({StartMode.ISOLATED, StartMode.ONCE})
"""A loss ends a job only where it had begun alone, or must not begin again: ADR 0027."""


def none_together(record: Record) -> Iterator[Violation]:
    """No process runs two attempts of a job at once, also after it stood still past a lease."""
    for earlier, later in record.together:
        fences = f"attempts {earlier.fence} and {later.fence}"
        yield Violation("together", later.job_id, f"{fences} at {later.at_ms} on {later.node}")


def none_dies_for_others(record: Record) -> Iterator[Violation]:
    """No job is dead because its worker was lost while it ran beside others, or had not begun."""
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
                yield Violation("innocent", job_id, f"attempt {job.fence} ran beside others")
