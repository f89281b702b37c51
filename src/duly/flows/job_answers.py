"""Answers to requests about a stored job: its result, or to cancel, repeat or delete it.

Takes what the store answered; returns the job or its result, or raises why not. One place, so that
applications, principals and operators get the same answers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from duly.errors import Conflict, NotFound
from duly.model.jobs import Job, JobId, JobState
from duly.model.stored_jobs import JobRefused


def granted(answer: Job | JobRefused, wish: str) -> Job:
    """The job as it now stands; `wish` says what was to become of it: `cancelled`."""
    if isinstance(answer, Job):
        return answer
    if answer.state is None:
        raise no_such_job(answer.job_id)
    raise Conflict(f"job {answer.job_id} is {answer.state} and cannot be {wish}")


def result_of(job_id: JobId, job: Job | None) -> Any:
    """Return what the action returned; NotFound without a job, Conflict before it succeeded."""
    if job is None:
        raise no_such_job(job_id)
    if job.state is not JobState.SUCCEEDED:
        raise Conflict(f"job {job_id} is {job.state} and has no result")
    return None if job.result is None else msgspec.json.decode(job.result)


def no_such_job(job_id: JobId) -> NotFound:
    """Never stored, or removed since."""
    return NotFound(f"job {job_id} does not exist; it may have been removed after its time")
