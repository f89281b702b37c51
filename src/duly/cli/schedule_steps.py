"""`duly schedules`, commands that change: pause, resume, delete, run, backfill and release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import click
from rich.progress import Progress

from duly.cli.output import print_fields, print_json, say
from duly.cli.target import Target, by_option, confirm, instant, on_database, yes_option, zone_of
from duly.operate.admin import Admin
from duly.operate.schedule_admin import BackfillProgress
from duly.operate.schedule_views import OccurrenceView, ScheduleView


def _step(target: Target, work: Callable[[Admin], Awaitable[ScheduleView]], did: str) -> None:
    """Run a step and print the schedule's new state."""
    view = target.ask(work)
    if target.as_json:
        print_json({"schedule": view})
        return
    then = "" if view.next_run_at is None else f", next run {view.next_run_at:%Y-%m-%d %H:%M:%S}Z"
    say(f"{view.key} is {did}{then}")


@click.command("pause")
@click.argument("schedule")
@click.option("--note", default="", help="Reason.")
@by_option
@on_database
def pause(target: Target, schedule: str, note: str, by: str) -> None:
    """Pause a schedule until it is resumed.

    \b
    Examples:
      duly schedules pause crm/user:ada/digest --note "on holiday"
    """

    async def work(admin: Admin) -> ScheduleView:
        return await admin.schedules.pause(schedule, note, by=by)

    _step(target, work, "paused")


@click.command("resume")
@click.argument("schedule")
@by_option
@on_database
def resume(target: Target, schedule: str, by: str) -> None:
    """Resume a paused schedule; its next time is the first after now.

    \b
    Examples:
      duly schedules resume crm/user:ada/digest
    """

    async def work(admin: Admin) -> ScheduleView:
        return await admin.schedules.resume(schedule, by=by)

    _step(target, work, "resumed")


@click.command("delete")
@click.argument("schedule")
@by_option
@yes_option
@on_database
def delete(target: Target, schedule: str, by: str, yes: bool) -> None:
    """Delete a schedule; its ledger and history are kept under its id.

    \b
    Examples:
      duly schedules delete crm/user:ada/digest
      duly schedules delete crm/user:ada/digest --yes --by ops
    """
    confirm(f"Delete schedule {schedule}?", is_sure=yes)

    async def work(admin: Admin) -> ScheduleView:
        return await admin.schedules.delete(schedule, by=by)

    _step(target, work, "deleted")


@click.command("release")
@click.argument("schedule")
@by_option
@on_database
def release(target: Target, schedule: str, by: str) -> None:
    """Retry a quarantined schedule; it is quarantined again if it is still broken.

    \b
    Examples:
      duly schedules release crm/user:ada/digest
    """

    async def work(admin: Admin) -> ScheduleView:
        return await admin.schedules.release(schedule, by=by)

    _step(target, work, "released")


@click.command("run")
@click.argument("schedule")
@click.option("--request-id", help="Repeated calls with the same id make one run.")
@on_database
def run(target: Target, schedule: str, request_id: str | None) -> None:
    """Run a schedule once, now, in addition to its times; the overlap policy applies.

    Needs --app: the application declares how the action runs.

    \b
    Examples:
      duly schedules run crm/user:ada/digest --app shop:app
      duly schedules run crm/user:ada/digest --app shop:app --request-id t-4711
    """

    async def work(admin: Admin) -> OccurrenceView:
        return await admin.schedules.run_now(schedule, request_id)

    made = target.ask(work)
    if target.as_json:
        print_json({"occurrence": made})
    else:
        print_fields({"state": made.state, "job": made.job_id, "reason": made.reason})


@click.command("backfill")
@click.argument("schedule")
@click.option("--from", "since", required=True, metavar="TIME", help="First time, included.")
@click.option("--to", "until", required=True, metavar="TIME", help="Not included.")
@yes_option
@on_database
def backfill(target: Target, schedule: str, since: str, until: str, yes: bool) -> None:
    """Run past times that never ran: missed, skipped, withdrawn, or not in the ledger.

    Times without an offset are in the schedule's zone. An interrupted backfill can be restarted:
    times that have a job are left alone.

    \b
    Examples:
      duly schedules backfill crm/user:ada/digest --app shop:app --from 2026-03-01 --to 2026-03-08
    """
    confirm(f"Run what {schedule} missed from {since} to {until}?", is_sure=yes)
    bar = Progress(transient=True)

    def on_step(progress: BackfillProgress) -> None:
        bar.update(task, completed=progress.done, total=progress.total)

    async def work(admin: Admin) -> BackfillProgress:
        zone = await zone_of(admin, schedule)
        times = instant(since, zone), instant(until, zone)
        return await admin.schedules.backfill(schedule, *times, on_step=on_step)

    # No progress bar in JSON output.
    with nullcontext() if target.as_json else bar:
        task = bar.add_task("backfill", total=None)
        done = target.ask(work)
    if target.as_json:
        print_json({"planned": done.planned, "left_alone": done.left_alone, "times": done.total})
    else:
        say(f"{done.planned} jobs created, {done.left_alone} times left alone")


STEPS = (backfill, delete, pause, release, resume, run)
"""Commands added to the group `duly schedules`."""
