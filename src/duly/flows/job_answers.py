"""Answers to requests to read, cancel, retry or delete a stored job.

One place, so that applications, principals and operators get the same results and exceptions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from duly.errors import Conflict, NotFound
from duly.model.jobs import Job, JobId, JobState
from duly.model.stored_jobs import JobRefused


def granted(answer: Job | JobRefused, outcome: str) -> Job:
    """Return the job, or raise why it could not become `outcome`, as in `cancelled`."""
    if isinstance(answer, Job):
        return answer
    if answer.state is None:
        raise no_such_job(answer.job_id)
    raise Conflict(f"job {answer.job_id} is {answer.state} and cannot be {outcome}")


def result_of(job_id: JobId, job: Job | None) -> Any:
    """Return the job's result; NotFound without a job, Conflict unless it succeeded."""
    if job is None:
        raise no_such_job(job_id)
    if job.state is not JobState.SUCCEEDED:
        raise Conflict(f"job {job_id} is {job.state} and has no result")
    return None if job.result is None else msgspec.json.decode(job.result)


def no_such_job(job_id: JobId) -> NotFound:
    """Return the exception for a job that was never stored or has been removed."""
    return NotFound(f"job {job_id} does not exist; it may have been removed after its retention")
