"""`duly workers`: list workers, alive and silent."""

from __future__ import annotations

import click

from duly.cli.output import print_json, print_table
from duly.cli.target import Target, limit_option, on_database
from duly.operate.admin import Admin
from duly.operate.job_views import WorkerView


def _state(view: WorkerView) -> str:
    if not view.is_alive:
        return "silent"
    return "stopping" if view.is_stopping else "alive"


_WORKERS = {
    "worker": lambda view: view.id,
    "state": _state,
    "host": lambda view: f"{view.host}:{view.pid}",
    "queues": lambda view: view.queues,
    "running": lambda view: f"{view.running}/{view.slots}",
    "since": lambda view: view.started_at,
    "last heard": lambda view: view.beat_at,
}


@click.command()
@limit_option
@on_database
def workers(target: Target, limit: int) -> None:
    """List workers, and whether they are alive.

    \b
    Examples:
      duly workers
      duly workers --json
    """

    async def look(admin: Admin) -> list[WorkerView]:
        return await admin.workers(limit=limit)

    found = target.ask(look)
    if target.as_json:
        print_json({"workers": found})
    else:
        print_table(found, _WORKERS, "no worker is registered; start one with: duly run")
