"""`duly schedules`: list, show and explain. Commands that change are in `schedule_steps`."""

from __future__ import annotations

from typing import get_args

import click

from duly.cli.explain import show as show_explanation
from duly.cli.occurrences import COLUMNS as LEDGER
from duly.cli.output import heading, print_fields, print_json, print_table, say
from duly.cli.target import Target, instant, limit_option, on_database, zone_of
from duly.model.index import Quarantined
from duly.model.schedule_writes import ScheduleFilter
from duly.model.schedules import HandOver, ScheduleState
from duly.operate.admin import Admin
from duly.operate.schedule_views import ScheduleDetail, ScheduleEventView, ScheduleView, key_text
from duly.operate.why import Answer
from duly.triggers import Explanation
from duly.triggers.durations import duration_text

_STATES = get_args(ScheduleState)
_HAND_OVERS = get_args(HandOver)
_COLUMNS = {
    "schedule": lambda view: view.key,
    "state": lambda view: view.state,
    "hand-over": lambda view: view.hand_over,
    "next run": lambda view: view.next_run_at,
    "rule": lambda view: f"{view.words}, {view.zone}",
    "action": lambda view: view.action,
}
_EVENTS = {
    "at": lambda event: event.at,
    "what": lambda event: event.kind,
    "by": lambda event: event.by,
    "note": lambda event: event.note or event.error or "",
}
_QUARANTINE = {
    "schedule": lambda row: key_text(row.key),
    "id": lambda row: row.schedule_id,
    "error": lambda row: row.error,
}


@click.group()
def schedules() -> None:
    """List, explain and change schedules of all owners.

    A SCHEDULE is written flow/scope/name, as in crm/user:ada/digest (flow/name for the system's; a
    slash inside a part is %2F), or by its id.

    \b
    Examples:
      duly schedules list --state paused
      duly schedules why crm/user:ada/digest --at 2026-03-30T09:00
    """


@schedules.command("list")
@click.option("--flow", help="Of this flow.")
@click.option("--owner", help="Of this scope: system, user:<id> or workspace:<id>.")
@click.option("--state", type=click.Choice(_STATES), help="In this state.")
@click.option("--hand-over", type=click.Choice(_HAND_OVERS), help="With this hand-over.")
@click.option("--name", "prefix", default="", help="Prefix of the name.")
@click.option("--after", metavar="SCHEDULE", help="Continue after the previous page's last one.")
@limit_option
@on_database
def list_(
    target: Target,
    flow: str | None,
    owner: str | None,
    state: ScheduleState | None,
    hand_over: HandOver | None,
    prefix: str,
    after: str | None,
    limit: int,
) -> None:
    """List schedules by flow, name and owner.

    \b
    Examples:
      duly schedules list --url postgresql://app@db/app
      duly schedules list --owner user:ada --state quarantined
      duly schedules list --hand-over external --state paused
      duly schedules list --flow crm --name digest --json
    """
    which = ScheduleFilter(flow, owner, state, prefix, hand_over)

    async def search(admin: Admin) -> list[ScheduleView]:
        return await admin.schedules.search(which, after=after, limit=limit)

    found = target.ask(search)
    following = found[-1].key if len(found) == limit else None
    if target.as_json:
        print_json({"schedules": found, "next": following})
        return
    print_table(found, _COLUMNS, "no schedule matches; omit an option to see more")
    if following is not None:
        say(f"more: --after {following}", dim=True, err=True)


@schedules.command("show")
@click.argument("schedule")
@click.option(
    "-n",
    "times",
    default=5,
    show_default=True,
    type=click.IntRange(0, 100),
    help="How many next times to show.",
)
@limit_option
@on_database
def show(target: Target, schedule: str, times: int, limit: int) -> None:
    """Show one schedule: definition, next times, coverage, ledger and history.

    \b
    Examples:
      duly schedules show crm/user:ada/digest
      duly schedules show sch_01HZX3 --json
    """

    async def look(admin: Admin) -> ScheduleDetail:
        return await admin.schedules.show(schedule, times=times, limit=limit)

    detail = target.ask(look)
    if target.as_json:
        print_json({**_detail(detail), "share": detail.coverage.share})
        return
    _print_schedule(detail.schedule)
    heading("next times")
    for time in detail.next_times:
        say(f"  {time}")
    _print_coverage(detail)
    heading("ledger, newest first")
    print_table(detail.occurrences, LEDGER, "  nothing yet")
    heading("history")
    print_table(detail.events, _EVENTS, "  none stored")


def _detail(detail: ScheduleDetail) -> dict[str, object]:
    return {
        "schedule": detail.schedule,
        "next_times": detail.next_times,
        "coverage": detail.coverage,
        "occurrences": detail.occurrences,
        "events": detail.events,
    }


def _print_schedule(view: ScheduleView) -> None:
    rows: dict[str, object] = {
        "schedule": view.key,
        "id": view.id,
        "state": view.state,
        "rule": f"{view.words}, {view.zone}",
        "next run": view.next_run_at,
        "action": f"{view.flow}.{view.action}",
        "input": view.input_preview,
        "hand-over": view.hand_over,
        "policies": ", ".join(f"{name} {value}" for name, value in view.policies.items()),
        "created": view.created_at,
        "changed": view.updated_at,
    }
    optional: dict[str, object] = {
        "description": view.description,
        "note": view.note,
        "error": view.error,
        "runs left": view.runs_left,
        "after completion": "deleted" if view.delete_after_completion else "",
    }
    print_fields(rows | {name: value for name, value in optional.items() if value})


def _print_coverage(detail: ScheduleDetail) -> None:
    coverage = detail.coverage
    share = "nothing was expected"
    if coverage.share is not None:
        share = f"{coverage.fired} of {coverage.expected} fired ({coverage.share:.1%})"
    states = ", ".join(f"{count} {state}" for state, count in coverage.states.items())
    late = coverage.lateness
    heading("the last seven days")
    say(f"  {share}; {coverage.paused} in a pause, {coverage.extras} extra")
    if states:
        say(f"  {states}")
    if late.looked_at:
        found = {"p50": late.p50_ms, "p95": late.p95_ms, "p99": late.p99_ms}
        shown = [f"{name} {duration_text(ms)}" for name, ms in found.items() if ms is not None]
        say(f"  late by {', '.join(shown)}")


@schedules.command("preview")
@click.argument("schedule")
@click.option(
    "-n",
    "count",
    default=5,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="How many next times to show.",
)
@on_database
def preview(target: Target, schedule: str, count: int) -> None:
    """List the next times of a schedule, also while it is paused.

    \b
    Examples:
      duly schedules preview crm/user:ada/digest -n 10
    """

    async def look(admin: Admin) -> Explanation:
        return await admin.schedules.preview(schedule, count)

    explanation = target.ask(look)
    if target.as_json:
        print_json(explanation)
    else:
        show_explanation(explanation)


@schedules.command("why")
@click.argument("schedule")
@click.option(
    "--at",
    required=True,
    metavar="TIME",
    help="ISO-8601; without an offset, in the schedule's zone.",
)
@on_database
def why(target: Target, schedule: str, at: str) -> None:
    """Explain why a schedule did or did not fire at a time.

    Works for any past or future time, and for deleted schedules by their id.

    \b
    Examples:
      duly schedules why crm/user:ada/digest --at 2026-03-30T09:00
      duly schedules why sch_01HZX3 --at 2026-03-30T07:00:00Z --json
    """

    async def look(admin: Admin) -> Answer:
        asked = instant(at, await zone_of(admin, schedule))
        return await admin.why(schedule, asked)

    answer = target.ask(look)
    if target.as_json:
        print_json({"verdict": answer.verdict, "text": answer.text, "facts": dict(answer.facts)})
        return
    say(answer.verdict.value.replace("_", " "), bold=True)
    say(answer.text)
    print_fields(dict(answer.facts))


@schedules.command("events")
@click.argument("schedule")
@limit_option
@on_database
def events(target: Target, schedule: str, limit: int) -> None:
    """List the changes of a schedule and their authors; name a deleted one by its id.

    \b
    Examples:
      duly schedules events crm/user:ada/digest
    """

    async def look(admin: Admin) -> list[ScheduleEventView]:
        return await admin.schedules.events(schedule, limit)

    found = target.ask(look)
    if target.as_json:
        print_json({"events": found})
    else:
        print_table(found, _EVENTS, "none stored")


@schedules.command("quarantine")
@limit_option
@on_database
def quarantine(target: Target, limit: int) -> None:
    """List schedules whose rows cannot be evaluated, with their errors.

    \b
    Examples:
      duly schedules quarantine
      duly schedules release crm/user:ada/digest
    """

    async def look(admin: Admin) -> list[Quarantined]:
        return await admin.schedules.quarantined(limit)

    found = target.ask(look)
    if target.as_json:
        print_json({"quarantined": found})
    else:
        print_table(found, _QUARANTINE, "no row is quarantined")
