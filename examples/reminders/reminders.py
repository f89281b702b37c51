"""Reminders created by users and their agents: each belongs to a user and runs as that user.

Run it: python examples/reminders/reminders.py [URL]. Without a URL it works on a temporary SQLite
file. The example advances its own clock, so the output is the same every day.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from duly import Context, Duly, Flow, Principal, ResourceKind, cron, once, user, weekly
from duly.model.schedules import Schedule
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain

MONDAY = datetime(2026, 3, 30, 6, tzinfo=UTC)
STEP = timedelta(minutes=30)

reminders = Flow("reminders")
suspended: set[str] = set()


@dataclass
class Reminder:
    text: str


@dataclass
class Sent:
    count: int = 0


SENT = ResourceKind("sent", Sent)


@reminders.action
async def remind(reminder: Reminder, ctx: Context) -> None:
    assert ctx.schedule is not None
    # A document of this user.
    mine = ctx.user.resources(SENT)
    await mine.get_or_create("total", Sent())
    total = await mine.update("total", lambda sent: Sent(sent.count + 1))
    at = ctx.schedule.nominal_at
    who = ctx.principal
    where = f" of {who.org_id}" if who.org_id else ""
    print(f"  {at:%a %H:%M}  to {who.user_id}{where}: {reminder.text} (no. {total.value.count})")


@reminders.action
async def subscribe(reminder: Reminder, ctx: Context) -> None:
    """Create a schedule for the user on whose behalf the action runs."""
    every_monday = weekly({"mon": "09:00"}, tz="Europe/Berlin")
    await ctx.user.schedules.create("weekly", every_monday, action=remind, input=reminder)


@reminders.schedule(cron("0 8 * * *"))
async def count_reminders(ctx: Context) -> None:
    """Count reminders; a static schedule of the system, stored when the application starts."""
    assert ctx.schedule is not None
    who = "the system" if ctx.principal.is_system else "somebody"
    print(f"  {ctx.schedule.nominal_at:%a %H:%M}  {who} counts")


async def may_act(principal: Principal, schedule: Schedule) -> bool:  # noqa: ARG001
    return principal.user_id not in suspended


async def until(app: Duly, clock: ManualClock, end_at: datetime) -> None:
    """Advance the clock, planning and running jobs on the way."""
    while clock.now() < end_at:
        clock.set(clock.now() + STEP)
        await app.planner().run_once()
        await drain(app)


async def tell(app: Duly, clock: ManualClock) -> None:
    print("ada subscribes; an agent makes a reminder for bob, who works at acme:")
    await app.acting_for(user("ada")).enqueue(subscribe, Reminder("water the plants"))
    await drain(app)
    agent = app.acting_for(Principal("bob", "acme"), by="agent:planner")
    await agent.schedules(reminders).create(
        "followup-456",
        once(MONDAY + timedelta(hours=3)),
        action=remind,
        input={"text": "call lead 456"},
    )
    for event in await agent.schedules(reminders).events("followup-456"):
        print(f"  {event.kind} by {event.by}")

    print("Monday:")
    await until(app, clock, MONDAY + timedelta(hours=4))

    suspended.add("ada")
    print("ada is suspended; the week after:")
    await until(app, clock, MONDAY + timedelta(days=7, hours=4))
    weekly_digest = await app.schedules(reminders).of(user("ada")).get("weekly")
    assert weekly_digest is not None
    for row in await app.store.list_occurrences(weekly_digest.id):
        print(f"  {row.nominal_at:%a %d %b}: {row.state}")


async def main(url: str) -> None:
    clock = ManualClock(MONDAY)
    app = Duly(url, flows=[reminders], clock=clock, authorize=may_act)
    async with app.running(worker=False, keeper=False, planner=False):
        await tell(app, clock)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/reminders.db"))
