"""`duly queues`: what is in them, and what of it may run."""

from __future__ import annotations

import click
from msgspec import UNSET

from duly.admin import Admin
from duly.cli.output import print_json, print_table
from duly.cli.target import Target, by_option, on_database
from duly.job_views import QueueView

_QUEUES = {
    "queue": lambda view: view.queue,
    "state": lambda view: "paused" if view.is_paused else "open",
    "at once": lambda view: view.job_limit or "any",
    "per workspace": lambda view: view.workspace_limit,
    "jobs": lambda view: ", ".join(f"{n} {state.value}" for state, n in view.counts.items()),
    "note": lambda view: view.note or "",
}


@click.group()
def queues() -> None:
    """Look at queues, pause and resume them, and limit what runs at once.

    \b
    Examples:
      duly queues list
      duly queues pause mail --note "the mail server is down"
    """


@queues.command("list")
@on_database
def list_(target: Target) -> None:
    """List queues with what is decided about them and what is in them.

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
        print_table(found, _QUEUES, "there is no queue yet: enqueue a job")


@queues.command("pause")
@click.argument("queue")
@click.option("--note", help="Why.")
@by_option
@on_database
def pause(target: Target, queue: str, note: str | None, by: str) -> None:
    """Let workers take no more jobs of a queue; running ones go on.

    \b
    Examples:
      duly queues pause mail --note "the mail server is down"
    """
    target.ask(lambda admin: admin.pause(queue, note, by=by))
    _said(target, queue, "paused")


@queues.command("resume")
@click.argument("queue")
@on_database
def resume(target: Target, queue: str) -> None:
    """Let workers take jobs of a queue again.

    \b
    Examples:
      duly queues resume mail
    """
    target.ask(lambda admin: admin.resume(queue))
    _said(target, queue, "open")


@queues.command("limit")
@click.argument("queue")
@click.option("--jobs", "job_limit", type=int, help="Jobs of the queue at once, over all workers.")
@click.option("--any", "is_any", is_flag=True, help="Any number of jobs at once.")
@click.option("--per-workspace", type=int, help="Jobs of one workspace at once, served fairly.")
@on_database
def limit(
    target: Target, queue: str, job_limit: int | None, is_any: bool, per_workspace: int | None
) -> None:
    """Limit what of a queue may run at once; what is not named stays as it is.

    \b
    Examples:
      duly queues limit mail --jobs 10
      duly queues limit mail --per-workspace 2
      duly queues limit mail --any
    """
    if is_any == (job_limit is not None) and (is_any or per_workspace is None):
        raise click.UsageError("name one of --jobs and --any, or --per-workspace")
    jobs = None if is_any else UNSET if job_limit is None else job_limit
    pairs = UNSET if per_workspace is None else per_workspace
    target.ask(lambda admin: admin.limit(queue, job_limit=jobs, workspace_limit=pairs))
    _said(target, queue, "limited")


def _said(target: Target, queue: str, state: str) -> None:
    if target.as_json:
        print_json({"queue": queue, "state": state})
    else:
        click.echo(f"queue {queue} is {state}")
