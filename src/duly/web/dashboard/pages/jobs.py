"""Job pages: list with filter, one job with its history, and actions on jobs."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from urllib.parse import urlencode

from duly.errors import InvalidInput
from duly.model.jobs import JobId, JobState
from duly.model.stored_jobs import JobFilter
from duly.operate.job_views import JobDetail
from duly.web.dashboard.charts import Span
from duly.web.dashboard.icons import tone
from duly.web.dashboard.pages.page import Done, Page, PageAction, PageRequest

PAGE_SIZE = 50
RETRIABLE = (JobState.DEAD, JobState.RETRYING, JobState.SCHEDULED)
CANCELLABLE = (JobState.SCHEDULED, JobState.QUEUED, JobState.PROCESSING, JobState.RETRYING)
DELETABLE = (JobState.QUEUED, JobState.SUCCEEDED, JobState.CANCELLED, JobState.DEAD)
MAX_SPANS = 40
MAX_AT_ONCE = 1_000
"""Limit of jobs per bulk action."""
_BULK = {
    "retry": "queued again",
    "delete": "deleted, with their input, result and error",
}


async def jobs(page_request: PageRequest) -> Page:
    """Show one page of jobs."""
    which = filter_of(page_request)
    before = page_request.word("before")
    page, next_before = await page_request.admin.job_page(
        which, before=None if before is None else JobId(before), limit=PAGE_SIZE
    )
    menu = await page_request.costly.menu.try_now()
    values = {
        "jobs": page,
        "which": which,
        "named": _named(which),
        "counts": {} if menu is None else menu.states,
        "states": [state.value for state in JobState if state is not JobState.FAILED],
        "next_before": next_before,
        "before": before,
        "may_retry": which.state is JobState.DEAD,
    }
    return Page("jobs.html", "Jobs", "jobs", values, is_live=before is None)


def filter_of(page_request: PageRequest) -> JobFilter:
    """Return the filter of a query or form; refuse unknown states."""
    state = page_request.word("state")
    if state is not None and state not in set(JobState):
        raise InvalidInput(f"state {state[:30]!r}; allowed: {', '.join(JobState)}")
    return JobFilter(
        state=None if state is None else JobState(state),
        queue=page_request.word("queue"),
        workspace=page_request.word("workspace"),
        action=page_request.word("action"),
        schedule_id=page_request.word("schedule_id"),
        correlation_id=page_request.word("correlation_id"),
    )


def _named(which: JobFilter) -> dict[str, str]:
    """Return the fields that a filter sets."""
    found = {each.name: getattr(which, each.name) for each in fields(which)}
    return {name: str(value) for name, value in found.items() if value is not None}


async def confirm_many(page_request: PageRequest) -> Page:
    """Show how many jobs a bulk action affects, for confirmation."""
    do = page_request.need("do")
    if do not in _BULK:
        raise InvalidInput(f"do is {do[:30]!r}; allowed: {', '.join(_BULK)}")
    which = filter_of(page_request)
    count = await page_request.admin.count_many(which, limit=MAX_AT_ONCE)
    values = {
        "do": do,
        "question": _BULK[do],
        "named": _named(which),
        "count": count,
        "most": MAX_AT_ONCE,
    }
    return Page("jobs_confirm.html", "Jobs", "jobs", values, is_live=False)


async def job(page_request: PageRequest) -> Page:
    """Show one job with its attempts and events."""
    job_id = JobId(page_request.need("id"))
    detail = await page_request.admin.job(job_id)
    state = detail.job.state
    values = {
        "detail": detail,
        "job": detail.job,
        "spans": spans_of(detail, page_request.now),
        "audit": await page_request.admin.monitoring.audit(target=f"job:{job_id}", limit=20),
        "may": {
            "retry": state in RETRIABLE,
            "cancel": state in CANCELLABLE and not detail.job.cancel_asked,
            "delete": state in DELETABLE,
        },
    }
    return Page("job.html", f"{detail.job.action} · job", "jobs", values)


def spans_of(detail: JobDetail, now: datetime) -> list[Span]:
    """Return the waiting times and attempts of a job, one lane per attempt."""
    found: list[Span] = []
    waiting_since = detail.job.created_at
    for lane, attempt in enumerate(detail.attempts[-MAX_SPANS:]):
        ended = attempt.ended_at or now
        status = attempt.status or "processing"
        if attempt.started_at > waiting_since:
            found.append(Span(waiting_since, attempt.started_at, "faint", "waited", lane))
        words = f"attempt {attempt.number}: {status.replace('_', ' ')}"
        found.append(Span(attempt.started_at, ended, tone(status), words, lane))
        waiting_since = ended
    if detail.job.finished_at is None and not (found and found[-1].end == now):
        lane = found[-1].lane + 1 if found else 0
        found.append(Span(waiting_since, max(now, waiting_since), "faint", "waits", lane))
    return found


async def _retry(page_request: PageRequest) -> Done:
    job = await page_request.admin.retry(
        JobId(page_request.need("id")), by=page_request.operator.name
    )
    return Done(f"Job {job.id} is {job.state}.")


async def _cancel(page_request: PageRequest) -> Done:
    job = await page_request.admin.cancel(
        JobId(page_request.need("id")), by=page_request.operator.name
    )
    asked = "was asked to stop" if job.cancel_asked and job.finished_at is None else "is cancelled"
    return Done(f"Job {job.id} {asked}.")


async def _delete(page_request: PageRequest) -> Done:
    job = await page_request.admin.delete(
        JobId(page_request.need("id")), by=page_request.operator.name
    )
    return Done(f"Job {job.id} is deleted: its input, result and error are gone.")


async def _retry_many(page_request: PageRequest) -> Done:
    report = await page_request.admin.retry_many(
        filter_of(page_request), limit=MAX_AT_ONCE, by=page_request.operator.name
    )
    more = " There are more: do it again." if report.next_before else ""
    words = f"{report.done:,} jobs are queued again, {report.refused:,} were not.{more}"
    return Done(words, _list_of(page_request))


async def _delete_many(page_request: PageRequest) -> Done:
    report = await page_request.admin.delete_many(
        filter_of(page_request), limit=MAX_AT_ONCE, by=page_request.operator.name
    )
    more = " There are more: do it again." if report.next_before else ""
    words = f"{report.done:,} jobs are deleted, {report.refused:,} were not.{more}"
    return Done(words, _list_of(page_request))


def _list_of(page_request: PageRequest) -> str:
    """Return the path of the list that a bulk action came from."""
    return f"/jobs?{urlencode(_named(filter_of(page_request)))}"


def _bulk_target(page_request: PageRequest) -> str:
    """Return the whole filter, so that the audit records which jobs were meant."""
    known = [each.name for each in fields(JobFilter)]
    return f"jobs:{urlencode({name: word for name in known if (word := page_request.word(name))})}"


ACTIONS = {
    "/job/retry": PageAction("job.retry", _retry, "job:{id}"),
    "/job/cancel": PageAction("job.cancel", _cancel, "job:{id}"),
    "/job/delete": PageAction("job.delete", _delete, "job:{id}"),
    "/jobs/retry": PageAction("jobs.retry", _retry_many, _bulk_target),
    "/jobs/delete": PageAction("jobs.delete", _delete_many, _bulk_target),
}
