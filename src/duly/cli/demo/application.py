"""`duly demo`: the sample application, with users in several zones and jobs that fail.

Everything is short, so that a minute shows all states of a job.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta

from duly.app import Duly
from duly.flows.collections.requests import TriggerWords
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.retries import RetryPolicy
from duly.model.schedules import Limits, Misfire, Policies
from duly.model.scopes import SYSTEM, user, workspace
from duly.triggers import cron, every, once, weekly

SOON = RetryPolicy(attempts=3, backoff="fixed", first_delay_ms=1_000, jitter=False)
PEOPLE = {
    "ada": "Europe/London",
    "bo": "Asia/Shanghai",
    "chidi": "Africa/Lagos",
    "dana": "America/New_York",
    "emi": "Asia/Tokyo",
}
ROWS = 5


@dataclass
class Digest:
    """Input of a digest."""

    to: str
    api_key: str = "sk-demo-never-shown"


def make_app(url: str) -> Duly:
    """Return the application on a database."""
    return Duly(url, flows=[_reminders(), _reports(), _billing()], look_ahead_s=10)


def _reminders() -> Flow:
    # The default limit of one fire per minute is too slow for a demo.
    reminders = Flow("reminders", limits=Limits(shortest_interval_ms=1_000))

    @reminders.action(queue="mail", retry=SOON)
    async def send_digest(digest: Digest) -> dict[str, str]:
        """Send mail through a server that is sometimes busy."""
        await asyncio.sleep(random.uniform(0.05, 0.4))  # noqa: S311
        if random.random() < 0.15:  # noqa: S311
            raise ConnectionError(f"smtp.example.org is busy (key {digest.api_key})")
        return {"sent_to": digest.to}

    return reminders


def _reports() -> Flow:
    reports = Flow("reports")

    @reports.action(queue="reports")
    async def build(ctx: Context) -> int:
        """Run long enough to be seen running."""
        for row in range(1, ROWS + 1):
            ctx.progress(100 * row / ROWS, f"{row * 200} of {ROWS * 200} rows")
            await asyncio.sleep(0.6)
        return ROWS * 200

    @reports.action(queue="reports", timeout_s=2, retry=RetryPolicy(attempts=1))
    async def hang() -> None:
        """Never return: the timeout ends it, and it is dead after one attempt."""
        await asyncio.sleep(3_600)

    @reports.schedule(every(seconds=15))
    async def tidy() -> None:
        """Run as a schedule declared in code."""

    return reports


def _billing() -> Flow:
    billing = Flow("billing")

    @billing.action(retry=SOON)
    async def charge(ctx: Context) -> None:
        """Fail always: tried three times, then dead until it is retried."""
        raise ValueError(f"card declined (try {ctx.attempt})")

    return billing


async def fill(app: Duly) -> None:
    """Schedules of several users and kinds, some of which fire all the time."""
    digests, reports = app.schedules("reminders"), app.schedules("reports")
    now = app.clock.now()
    for number, (name, zone) in enumerate(PEOPLE.items()):
        mine, letter = digests.of(user(name)), Digest(f"{name}@example.org")
        rules: dict[str, TriggerWords] = {
            "morning": cron("0 9 * * MON-FRI", tz=zone),
            "week": weekly({"mon": "08:30", "thu": ["09:00", "17:30"]}, tz=zone),
            "welcome": once(now + timedelta(seconds=5 + 2 * number)),
        }
        for title, rule in rules.items():
            await mine.create(title, rule, action="send_digest", input=letter)
    quick = Policies(misfire=Misfire("skip"), grace_ms=5_000)
    for company, title, seconds in (("acme", "orders", 3), ("globex", "alerts", 4)):
        letter = Digest(f"{title}@{company}.example")
        ours = digests.of(workspace(company))
        rule = every(seconds=seconds)
        await ours.create(title, rule, action="send_digest", input=letter, policies=quick)
    await reports.of(SYSTEM).create("numbers", every(seconds=10), action="build")
    await reports.of(SYSTEM).create("stuck", every(seconds=20), action="hang")
    await app.schedules("billing").of(SYSTEM).create("renewals", every(seconds=20), action="charge")
    await app.client.enqueue("billing.charge", None)
    await app.client.enqueue("reports.build", None)
