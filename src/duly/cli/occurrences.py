"""`duly occurrences`: the ledger of one schedule."""

from __future__ import annotations

import click

from duly.cli.output import print_json, print_table
from duly.cli.target import Target, instant, limit_option, on_database, zone_of
from duly.model.ledger import OccurrenceState
from duly.operate.admin import Admin
from duly.operate.schedule_views import OccurrenceView

COLUMNS = {
    "nominal time": lambda row: row.nominal_at,
    "times": lambda row: row.times,
    "state": lambda row: row.state,
    "late ms": lambda row: row.late_ms,
    "job": lambda row: row.job_id,
    "reason": lambda row: row.reason or "",
}


@click.group()
def occurrences() -> None:
    """List the ledger: the outcome of every time of a schedule.

    \b
    Examples:
      duly occurrences list crm/user:ada/digest --state missed
    """


@occurrences.command("list")
@click.argument("schedule")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in OccurrenceState]),
    help="In this state; may be repeated.",
)
@click.option("--since", metavar="TIME", help="Only this time and later ones.")
@click.option("--before", metavar="TIME", help="Only earlier times; use it to page back.")
@limit_option
@on_database
def list_(
    target: Target,
    schedule: str,
    states: tuple[str, ...],
    since: str | None,
    before: str | None,
    limit: int,
) -> None:
    """List occurrences of a schedule, newest first; name a deleted one by its id.

    Times without an offset are in the schedule's zone.

    \b
    Examples:
      duly occurrences list crm/user:ada/digest
      duly occurrences list crm/nightly --state failed --state missed --since 2026-03-01 --json
    """

    async def look(admin: Admin) -> list[OccurrenceView]:
        zone = await zone_of(admin, schedule)
        return await admin.schedules.occurrences(
            schedule,
            before=None if before is None else instant(before, zone),
            since=None if since is None else instant(since, zone),
            states=[OccurrenceState(each) for each in states] or None,
            limit=limit,
        )

    found = target.ask(look)
    if target.as_json:
        following = found[-1].nominal_at if len(found) == limit else None
        print_json({"occurrences": found, "next": following})
    else:
        print_table(found, COLUMNS, "no occurrence matches")
