"""`duly queues`: list, pause, resume and limit queues."""

from __future__ import annotations

import click
from msgspec import UNSET

from duly.cli.output import print_json, print_table, say
from duly.cli.target import Target, by_option, on_database
from duly.operate.admin import Admin
from duly.operate.job_views import QueueView

_QUEUES = {
    "queue": lambda view: view.queue,
    "state": lambda view: "paused" if view.is_paused else "open",
    "at once": lambda view: view.job_limit or "any",
    "per workspace": lambda view: view.workspace_limit,
    "jobs": lambda view: ", ".join(
        f"{count}{'+' if place in view.capped else ''} {place}"
        for place, count in view.counts.items()
    ),
    "note": lambda view: view.note or "",
}


@click.group()
def queues() -> None:
    """List queues, pause and resume them, and limit what runs at once.

    \b
    Examples:
      duly queues list
      duly queues pause mail --note "the mail server is down"
    """


@queues.command("list")
@on_database
def list_(target: Target) -> None:
    """List queues with their settings and the number of open and dead jobs.

    Counts stop at 10,000; "10000+" means that there may be more.

    \b
    Examples:
      duly queues list --json
    """

    async def look(admin: Admin) -> list[QueueView]:
        return await admin.queues()

    found = target.ask(look)
    if target.as_json:
        print_json({"queues": found})
    else:
        print_table(found, _QUEUES, "no queue yet: enqueue a job")


@queues.command("pause")
@click.argument("queue", required=False)
@click.option(
    "--all", "is_all", is_flag=True, help="Every queue, including those first used later."
)
@click.option("--note", help="Reason.")
@by_option
@on_database
def pause(target: Target, queue: str | None, is_all: bool, note: str | None, by: str) -> None:
    """Stop workers from claiming jobs of one queue, or of all; running jobs continue.

    \b
    Examples:
      duly queues pause mail --note "the mail server is down"
      duly queues pause --all --note "moving the database"
    """
    if queue is None or is_all:
        _check_all(queue, is_all)
        target.ask(lambda admin: admin.pause_all(note, by=by))
    else:
        target.ask(lambda admin: admin.pause(queue, note, by=by))
    _settings_text(target, queue, "paused")


@queues.command("resume")
@click.argument("queue", required=False)
@click.option("--all", "is_all", is_flag=True, help="End `pause --all`; single pauses stay.")
@on_database
def resume(target: Target, queue: str | None, is_all: bool) -> None:
    """End the pause of one queue, or the pause of all queues.

    \b
    Examples:
      duly queues resume mail
      duly queues resume --all
    """
    if queue is None or is_all:
        _check_all(queue, is_all)
        target.ask(lambda admin: admin.resume_all())
        _settings_text(target, queue, "open")
        return

    async def work(admin: Admin) -> bool:
        await admin.resume(queue)
        return await admin.all_paused() is not None

    still = target.ask(work)
    _settings_text(
        target, queue, "still paused with all queues (resume --all)" if still else "open"
    )


@queues.command("limit")
@click.argument("queue")
@click.option("--jobs", "job_limit", type=int, help="Jobs of the queue at once, over all workers.")
@click.option("--any", "is_any", is_flag=True, help="Any number of jobs at once.")
@click.option("--per-workspace", type=int, help="Jobs of one workspace at once, served fairly.")
@on_database
def limit(
    target: Target, queue: str, job_limit: int | None, is_any: bool, per_workspace: int | None
) -> None:
    """Limit how much of a queue runs at once; limits that are not given are unchanged.

    \b
    Examples:
      duly queues limit mail --jobs 10
      duly queues limit mail --per-workspace 2
      duly queues limit mail --any
    """
    if is_any == (job_limit is not None) and (is_any or per_workspace is None):
        raise click.UsageError("pass one of --jobs and --any, or --per-workspace")
    jobs = None if is_any else UNSET if job_limit is None else job_limit
    pairs = UNSET if per_workspace is None else per_workspace
    target.ask(lambda admin: admin.limit(queue, job_limit=jobs, workspace_limit=pairs))
    _settings_text(target, queue, "limited")


def _check_all(queue: str | None, is_all: bool) -> None:
    if (queue is None) != is_all:
        raise click.UsageError("name one queue, or pass --all")


def _settings_text(target: Target, queue: str | None, state: str) -> None:
    """Print the new state of a queue, or of all queues without a name."""
    if target.as_json:
        print_json({"queue": queue, "state": state})
    elif queue is None:
        say("all queues are paused" if state == "paused" else "the pause of all queues has ended")
    else:
        say(f"queue {queue} is {state}")
