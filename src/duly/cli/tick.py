"""`duly tick`: post an application's due schedules to its URL."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from duly.app import Duly
from duly.cli.application import find_app
from duly.cli.failures import explain_failures
from duly.cli.log_lines import begin_logging, log_options
from duly.cli.output import say
from duly.errors import BackendUnavailable

if TYPE_CHECKING:
    from duly.dispatch.tick.tick import Tick, TickReport


@click.command()
@click.argument("application", metavar="MODULE:NAME")
@click.option("--url", help="URL of the application; else DULY_BASE_URL.")
@click.option("--period", default=10.0, show_default=True, help="Seconds between two ticks.")
@click.option("--once", is_flag=True, help="Post what is due now, print the result, and exit.")
@log_options
@explain_failures
def tick(application: str, url: str | None, period: float, once: bool, **words: str) -> None:
    """Post schedules of hand-over `http` as they come due, until SIGTERM or Ctrl-C.

    MODULE:NAME names its Duly object. Start as many as you like: they share the work through the
    database. The secret is the first of DULY_DISPATCH_SECRETS.

    \b
    Examples:
      duly tick reminders:app --url https://app.example.org
      duly tick reminders:app --url http://127.0.0.1:8000 --once
    """
    if not 0.1 <= period <= 3_600:
        raise click.BadParameter("allowed: 0.1 to 3600 seconds", param_hint="--period")
    begin_logging(**words)
    asyncio.run(_run(find_app(application), url, None if once else period))


async def _run(app: Duly, url: str | None, period: float | None) -> None:
    async with app:
        tick = app.tick(await app.ready(), url)
        try:
            if period is None:
                say(_words(await _drain(tick)))
            else:
                await _repeat(tick, period)
        finally:
            await tick.close()


async def _repeat(tick: Tick, period: float) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # not on every platform
            loop.add_signal_handler(number, stopping.set)
    while not stopping.is_set():
        try:
            report = await _drain(tick, stopping)
            if report.posted:
                say(_words(report))
        except BackendUnavailable as error:
            say(f"duly: {error}", err=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(period):
                await stopping.wait()


async def _drain(tick: Tick, stopping: asyncio.Event | None = None) -> TickReport:
    """Tick until nothing is due."""
    # Imported late: only this command needs it.
    from duly.dispatch.tick.tick import TickReport

    total = TickReport()
    while stopping is None or not stopping.is_set():
        report = await tick.run_once()
        total = total + report
        if report.posted < tick.most:
            break
    return total


def _words(report: TickReport) -> str:
    return (
        f"posted {report.posted}: {report.closed} accepted, {report.again} to be posted again, "
        f"{report.failed} failed"
    )
