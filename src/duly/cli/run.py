"""`duly run`: an application's loops in this process."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys

import click

from duly.app import Duly
from duly.cli.failures import explain_failures
from duly.loops import WorkerOptions, WorkerStuck


@click.command()
@click.argument("application", metavar="MODULE:NAME")
@click.option("--queue", "queues", multiple=True, help="Serve this queue; may be repeated.")
@click.option("--slots", default=16, show_default=True, help="Handlers that run at once.")
@click.option("--fair", is_flag=True, help="Serve the least recently served workspace first.")
@click.option("--lease", default=30.0, show_default=True, help="Seconds a job is ours unrenewed.")
@click.option("--drain", default=30.0, show_default=True, help="Seconds to end when stopped.")
@click.option("--no-worker", is_flag=True, help="Run no jobs here.")
@click.option("--no-keeper", is_flag=True, help="Rescue and remove nothing here.")
@click.option("--no-planner", is_flag=True, help="Make no jobs from schedules here.")
@explain_failures
def run(
    application: str,
    queues: tuple[str, ...],
    slots: int,
    fair: bool,
    lease: float,
    drain: float,
    no_worker: bool,
    no_keeper: bool,
    no_planner: bool,
) -> None:
    """Run schedules and jobs of an application until SIGTERM or Ctrl-C, then end what has begun.

    MODULE:NAME is where its Duly object is, as in `reminders:app`. Start as many processes as you
    like, on as many machines: they share the work through the database.

    \b
    Examples:
      duly run reminders:app
      duly run reminders:app --queue mail --queue default --slots 32
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    app = find_app(application)
    options = WorkerOptions(
        queues=queues or ("default",), slots=slots, fair=fair, lease_s=lease, drain_s=drain
    )
    worker = False if no_worker else options
    asyncio.run(_serve(app, worker, keeper=not no_keeper, planner=not no_planner))


async def _serve(app: Duly, worker: WorkerOptions | bool, *, keeper: bool, planner: bool) -> None:
    stuck = False
    try:
        await app.serve(worker, keeper, planner)
    except* WorkerStuck as group:
        for error in group.exceptions:
            click.echo(f"duly: {error}", err=True)
        stuck = True
    if stuck:
        # Handlers that never return, in threads or on this loop, would keep the process alive.
        sys.stderr.flush()
        os._exit(1)


def find_app(where: str) -> Duly:
    """The Duly object that `module:name` names."""
    module_name, _, name = where.partition(":")
    if not module_name or not name:
        raise click.UsageError(f"{where!r}; write it as module:name, as in reminders:app")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".", 1)[0] and error.name != module_name:
            raise
        raise click.UsageError(f"there is no module {module_name!r} here or installed") from None
    app = getattr(module, name, None)
    if not isinstance(app, Duly):
        raise click.UsageError(f"{name!r} in {module_name} is not a Duly object")
    return app
