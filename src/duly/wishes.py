"""What somebody wants of a job that is stored: to cancel, repeat or delete it.

Takes what the store answered; gives the job, or raises what says why not. One place, so that the
application and the operator are told the same.
"""

from __future__ import annotations

from duly.errors import Conflict, NotFound
from duly.job_store import JobRefused
from duly.jobs import Job, JobId


def granted(answer: Job | JobRefused, wish: str) -> Job:
    """The job as it now stands; `wish` says what was to become of it: `cancelled`."""
    if isinstance(answer, Job):
        return answer
    if answer.state is None:
        raise no_such_job(answer.job_id)
    raise Conflict(f"job {answer.job_id} is {answer.state} and cannot be {wish}")


def no_such_job(job_id: JobId) -> NotFound:
    """Never stored, or removed since."""
    return NotFound(f"job {job_id} does not exist; it may have been removed after its time")
