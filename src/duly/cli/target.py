"""The database that a command works on: `--url`, DULY_URL, or the one of `--app`.

Commands reach data only through `admin`, and run no DDL: a wrong URL must not create a database.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click

from duly.app import Duly
from duly.cli.application import find_app
from duly.cli.failures import explain_failures
from duly.cli.output import say
from duly.errors import BackendUnavailable, InvalidInput, NotFound
from duly.operate.admin import Admin
from duly.operate.control_characters import escape_controls
from duly.settings import Settings

T = TypeVar("T")
_FILE = "sqlite:///"
_STORES = logging.getLogger("duly.stores.sql.transactions")


@dataclass(frozen=True, slots=True)
class Target:
    """A database, and the output format."""

    url: str | None
    application: str | None
    namespace: str | None
    as_json: bool

    def ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run a piece of work with the admin of the database and return its result."""
        # The running application logs these warnings at startup; a command need not repeat them.
        _STORES.addFilter(_is_no_fault)

        async def run() -> T:
            async with self._app() as app:
                return await work(app.admin)

        return asyncio.run(run())

    def _app(self) -> Duly:
        flows = () if self.application is None else find_app(self.application).flows
        if self.application is not None and self.url is None:
            return find_app(self.application)
        url = self.url or Settings.from_environment().url
        if url is None:
            raise click.UsageError("no database: pass --url or --app, or set DULY_URL")
        if url == "memory:":
            raise InvalidInput("url is memory:, which no other process can read; name a database")
        file = Path(url.removeprefix(_FILE).partition("?")[0])
        if url.startswith(_FILE) and not file.exists():
            raise BackendUnavailable(f"there is no file {file}; run: duly schema init {url}")
        return Duly(url, flows=flows, namespace=self.namespace, skip_schema_init=True)


def _is_no_fault(record: logging.LogRecord) -> bool:
    return getattr(record, "event", None) != "store.fault"


def on_database(command: Callable[..., None]) -> Callable[..., None]:
    """Add the database options to a command, which receives one Target instead."""

    @click.option("--url", help="Database of the application.  [default: DULY_URL]")
    @click.option(
        "--app",
        "application",
        metavar="MODULE:NAME",
        help="Take database and secret names from an application; otherwise values are hidden.",
    )
    @click.option("--namespace", help="PostgreSQL schema, or table prefix in SQLite.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(command)
    @explain_failures
    def wrapped(
        *args: Any,
        url: str | None,
        application: str | None,
        namespace: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        command(Target(url, application, namespace, as_json), *args, **options)

    return wrapped


by_option = click.option(
    "--by", default="operator", show_default=True, help="Your name, for the history."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
limit_option = click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 1_000), help="How many."
)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask for confirmation unless `is_sure`; exit if the answer is no or there is no terminal."""
    if not is_sure and not click.confirm(escape_controls(question), err=True):
        say("nothing was done; pass --yes to skip the question", err=True)
        raise SystemExit(1)


def instant(text: str, zone: str = "UTC") -> datetime:
    """Parse an ISO-8601 time; without an offset it is local time in `zone`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"time {text!r}; write ISO-8601, such as 2026-03-07T09:00:00Z, or 2026-03-07T09:00 in "
            "the schedule's zone"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))


async def zone_of(admin: Admin, schedule: str) -> str:
    """Return the zone of a schedule; UTC for a deleted one."""
    try:
        return (await admin.schedules.get(schedule)).zone
    except NotFound:
        if "/" in schedule:
            raise
        return "UTC"
