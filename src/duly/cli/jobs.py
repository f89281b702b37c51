"""`duly jobs`: list and show jobs without payloads, and retry, cancel, delete or prune them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from duly.cli.output import heading, print_fields, print_json, print_table, say
from duly.cli.target import Target, by_option, confirm, limit_option, on_database, yes_option
from duly.model.jobs import JobId, JobState
from duly.model.stored_jobs import JobFilter
from duly.operate.admin import Admin
from duly.operate.control_characters import first_line
from duly.operate.job_views import JobDetail, JobView
from duly.triggers.durations import duration_text

_COLUMNS = {
    "job": lambda job: job.id,
    "state": lambda job: job.state,
    "action": lambda job: job.action,
    "queue": lambda job: job.queue,
    "workspace": lambda job: job.workspace,
    "tries": lambda job: f"{job.attempts}/{job.max_attempts}",
    "run time": lambda job: job.run_at,
    "error": lambda job: first_line(job.error)[:80],
}
_EVENTS = {
    "at": lambda event: event.at,
    "state": lambda event: event.state,
    "attempt": lambda event: event.attempt,
    "by": lambda event: event.actor or "",
    "reason": lambda event: event.reason or "",
}
_ATTEMPTS = {
    "": lambda attempt: attempt.number,
    "worker": lambda attempt: attempt.worker,
    "began": lambda attempt: attempt.started_at,
    "ended": lambda attempt: attempt.ended_at,
    "took": lambda attempt: None if attempt.took_ms is None else duration_text(attempt.took_ms),
    "as": lambda attempt: attempt.status,
    "error": lambda attempt: first_line(attempt.error)[:80],
}
_reason = click.option("--reason", help="Reason, for the history.")


_LOOKS = 10
"""Bounded searches per listing; after that the output says where to continue."""


@click.group()
def jobs() -> None:
    """List and show jobs, and retry, cancel, delete or prune them.

    \b
    Examples:
      duly jobs list --state dead
      duly jobs retry job_01HZX3
    """


@jobs.command("list")
@click.option(
    "--state", type=click.Choice([state.value for state in JobState]), help="In this state."
)
@click.option("--queue", help="Of this queue.")
@click.option("--workspace", help="Of this workspace.")
@click.option("--action", help="Of this action, as in crm.send.")
@click.option("--schedule", "schedule_id", help="Made by the schedule of this id.")
@click.option("--correlation", "correlation_id", help="With this correlation id.")
@click.option("--before", metavar="JOB", help="Continue before the last job of the previous page.")
@limit_option
@on_database
def list_(target: Target, state: str | None, before: str | None, limit: int, **words: str) -> None:
    """List jobs, newest first.

    \b
    Examples:
      duly jobs list --state dead --queue mail
      duly jobs list --schedule sch_01HZX3 --json
    """
    which = JobFilter(state=None if state is None else JobState(state), **words)

    async def look(admin: Admin) -> tuple[list[JobView], JobId | None]:
        found: list[JobView] = []
        following = None if before is None else JobId(before)
        for _ in range(_LOOKS):
            page, following = await admin.job_page(
                which, before=following, limit=limit - len(found)
            )
            found += page
            if following is None or len(found) == limit:
                break
        return found, following

    found, following = target.ask(look)
    if target.as_json:
        print_json({"jobs": found, "next": following})
        return
    print_table(found, _COLUMNS, "no job matches; omit an option to see more")
    if following is not None:
        say(f"more: --before {following}", dim=True, err=True)


@jobs.command("show")
@click.argument("job")
@on_database
def show(target: Target, job: str) -> None:
    """Show one job with its attempts and history; its input is a redacted preview.

    \b
    Examples:
      duly jobs show job_01HZX3
    """

    async def look(admin: Admin) -> JobDetail:
        return await admin.job(JobId(job))

    detail = target.ask(look)
    if target.as_json:
        print_json(detail)
        return
    view = detail.job
    rows: dict[str, object] = {
        "job": view.id,
        "state": view.state,
        "action": view.action,
        "queue": view.queue,
        "workspace": view.workspace,
        "tries": f"{view.attempts} of {view.max_attempts}",
        "run time": view.run_at,
        "created": view.created_at,
        "input": view.payload_preview,
    }
    optional: dict[str, object] = {
        "ended": view.finished_at,
        "worker": view.worker,
        "lease ends": view.lease_ends_at,
        "schedule": view.schedule_id,
        "nominal time": view.nominal_at,
        "key": view.key,
        "correlation": view.correlation_id,
        "progress": view.progress,
        "result": view.result_preview,
        "error": view.error,
    }
    print_fields(rows | {name: value for name, value in optional.items() if value is not None})
    heading("tries")
    print_table(detail.attempts, _ATTEMPTS, "  none yet")
    heading("history")
    print_table(detail.events, _EVENTS, "  none stored")


def _step(target: Target, work: Callable[[Admin], Awaitable[JobView]]) -> None:
    view = target.ask(work)
    if target.as_json:
        print_json({"job": view})
    elif view.cancel_asked and view.state is JobState.PROCESSING:
        say(f"{view.id} is running and was asked to stop")
    else:
        say(f"{view.id} is {view.state}")


@jobs.command("retry")
@click.argument("job")
@click.option(
    "--keep-attempts", is_flag=True, help="One more attempt, instead of all of them again."
)
@by_option
@_reason
@on_database
def retry(target: Target, job: str, keep_attempts: bool, by: str, reason: str | None) -> None:
    """Queue a dead job again, or a waiting one immediately.

    \b
    Examples:
      duly jobs retry job_01HZX3 --reason "the mail server is back"
    """

    async def work(admin: Admin) -> JobView:
        return await admin.retry(JobId(job), reset_attempts=not keep_attempts, by=by, reason=reason)

    _step(target, work)


@jobs.command("cancel")
@click.argument("job")
@by_option
@_reason
@on_database
def cancel(target: Target, job: str, by: str, reason: str | None) -> None:
    """Cancel a job that has not begun; ask a running job to stop.

    \b
    Examples:
      duly jobs cancel job_01HZX3
    """

    async def work(admin: Admin) -> JobView:
        return await admin.cancel(JobId(job), by=by, reason=reason)

    _step(target, work)


@jobs.command("delete")
@click.argument("job")
@by_option
@_reason
@yes_option
@on_database
def delete(target: Target, job: str, by: str, reason: str | None, yes: bool) -> None:
    """Clear the input, result and error of a queued or ended job.

    \b
    Examples:
      duly jobs delete job_01HZX3 --yes
    """
    confirm(f"Delete job {job}?", is_sure=yes)

    async def work(admin: Admin) -> JobView:
        return await admin.delete(JobId(job), by=by, reason=reason)

    _step(target, work)


@jobs.command("prune")
@click.option(
    "--limit",
    default=10_000,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="How many at most.",
)
@yes_option
@on_database
def prune(target: Target, limit: int, yes: bool) -> None:
    """Remove ended jobs past their retention; a keeper does this automatically.

    \b
    Examples:
      duly jobs prune --yes
    """
    confirm("Remove ended jobs past their retention?", is_sure=yes)

    async def work(admin: Admin) -> int:
        return await admin.cleanup(limit=limit)

    removed = target.ask(work)
    if target.as_json:
        print_json({"removed": removed})
    else:
        say(f"{removed} jobs removed")
