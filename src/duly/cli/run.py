"""`duly run`, `worker`, `planner` and `serve`: an application's loops, API and dashboard."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duly.app import Duly, Loop
from duly.cli.application import find_app
from duly.cli.failures import explain_failures
from duly.cli.log_lines import begin_logging, log_options
from duly.cli.output import say
from duly.runtime import WorkerOptions, WorkerStuck
from duly.web.serving.descriptors import raise_descriptor_limit

if TYPE_CHECKING:
    from duly.web.serving.serving import Listening

_DEFAULTS = WorkerOptions()
ROLES = ("planner", "worker", "keeper", "api")
F = TypeVar("F", bound=Callable[..., Any])


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_working = _options(
    click.option(
        "--queue",
        "queues",
        multiple=True,
        help="Serve only this queue; may be repeated.  [default: every queue of its actions]",
    ),
    click.option(
        "--slots",
        type=int,
        help=f"Handlers that run at once.  [default: the application's, else {_DEFAULTS.slots}]",
    ),
    click.option(
        "--fair/--unfair",
        default=None,
        help="Serve the least recently served workspace first.  [default: the application's, else "
        "unfair]",
    ),
    click.option(
        "--lease",
        type=float,
        help=f"Seconds of a job's lease.  [default: the application's, else {_DEFAULTS.lease_s:g}]",
    ),
    click.option(
        "--drain",
        type=float,
        help="Seconds to finish jobs at stop.  [default: the application's, else "
        f"{_DEFAULTS.drain_s:g}]",
    ),
)
_probed = _options(
    click.option(
        "--health",
        metavar="HOST:PORT",
        help="Serve only /healthz, /readyz and /metrics there.",
    ),
)
_serving = _options(
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=8787,
        show_default=True,
        help="0 takes a free one.",
    ),
    click.option("--dev", is_flag=True, help="Development mode: no sign-in on this machine."),
)


@click.command()
@click.argument("application", metavar="MODULE:NAME")
@click.option("--roles", default=",".join(ROLES), show_default=True, help="What to run here.")
@_serving
@_working
@_probed
@log_options
@explain_failures
def run(application: str, roles: str, **words: Any) -> None:
    """Run an application: schedules, jobs, API and dashboard, until SIGTERM or Ctrl-C.

    MODULE:NAME names its Duly object, as in `reminders:app`. Start as many processes as you like,
    on as many machines: they share the work through the database. Give the role `api` to one of
    them, or to several behind a proxy.

    \b
    Examples:
      duly run reminders:app
      duly run reminders:app --roles planner,worker,keeper --queue mail --slots 32
    """
    chosen = {role.strip() for role in roles.split(",") if role.strip()}
    unknown = sorted(chosen - set(ROLES))
    if unknown or not chosen:
        unknown_role = unknown[0] if unknown else "none"
        raise click.UsageError(f"--roles has {unknown_role!r}; known: {', '.join(ROLES)}")
    _run(application, chosen, words)


@click.command()
@click.argument("application", metavar="MODULE:NAME")
@_working
@_probed
@log_options
@explain_failures
def worker(application: str, **words: Any) -> None:
    """Run jobs of an application: `duly run` with the roles worker and keeper.

    \b
    Examples:
      duly worker reminders:app --queue mail --slots 32
      duly worker reminders:app --health 0.0.0.0:8788 --log json
    """
    _run(application, {"worker", "keeper"}, words)


@click.command()
@click.argument("application", metavar="MODULE:NAME")
@_probed
@log_options
@explain_failures
def planner(application: str, **words: Any) -> None:
    """Create jobs from due schedules: `duly run` with the roles planner and keeper.

    \b
    Examples:
      duly planner reminders:app
    """
    _run(application, {"planner", "keeper"}, words)


@click.command()
@click.argument("application", metavar="MODULE:NAME")
@_serving
@log_options
@explain_failures
def serve(application: str, **words: Any) -> None:
    """Serve HTTP: API, dispatch, webhooks and dashboard; `duly run` with the role api.

    \b
    Examples:
      duly serve reminders:app --host 0.0.0.0 --port 80
    """
    _run(application, {"api"}, words)


def _run(application: str, roles: set[str], words: dict[str, Any]) -> None:
    begin_logging(words["log_form"], words["log_level"])
    raise_descriptor_limit()
    app = find_app(application)
    options: WorkerOptions | bool = False
    if "worker" in roles:
        options = _worker_options(app.config.worker, words)
    shown = [role for role in ROLES if role in roles]
    say(f"duly: {application} on {app.safe_url}; roles: {', '.join(shown)}", err=True)
    others = [_server(app, words)] if "api" in roles else []
    if words.get("health"):
        others.append(_probing(app, words["health"]))
    try:
        asyncio.run(_serve(app, options, "keeper" in roles, "planner" in roles, *others))
    finally:
        for each in others:
            each.close()


def _worker_options(own: WorkerOptions, words: dict[str, Any]) -> WorkerOptions:
    """Return the options of the application's workers, changed by those of the command line."""
    given = {
        "queues": words["queues"] or None,
        "slots": words["slots"],
        "fair": words["fair"],
        "lease_s": words["lease"],
        "drain_s": words["drain"],
    }
    return replace(own, **{name: value for name, value in given.items() if value is not None})


def _server(app: Duly, words: dict[str, Any]) -> Listening:
    # Imported late: only commands that serve need it.
    from duly.web.serving.serving import Address, Serving

    server = Serving(app, Address(words["host"], words["port"], words["dev"]))
    say(f"duly: dashboard and API at {server.url}", err=True)
    link = server.sign_in_url()
    if link is not None:
        say(f"duly: sign in once, within an hour: {link}", err=True)
    return server


def _probing(app: Duly, where: str) -> Listening:
    from duly.web.serving.serving import Address, probing

    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"--health has {where!r}; write it as HOST:PORT, as in 0.0.0.0:8788")
    made = probing(app, Address(host.strip("[]"), int(port)))
    say(f"duly: probes and metrics at {made.url}", err=True)
    return made


async def _serve(
    app: Duly, worker: WorkerOptions | bool, keeper: bool, planner: bool, *others: Loop
) -> None:
    stuck = False
    try:
        await app.serve(worker, keeper, planner, *others)
    except* WorkerStuck as group:
        for error in group.exceptions:
            say(f"duly: {error}", err=True)
        stuck = True
    if stuck:
        # Handlers that never return, in threads or on this loop, would keep the process alive.
        sys.stderr.flush()
        os._exit(1)
