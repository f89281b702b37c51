"""A sample application with ten days of history, shown on the pages under test.

The store uses a manual clock: it advances from one due time to the next, plans what is due, and a
worker without handlers finishes each job by a fixed rule. It stops at the present.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from duly import (
    SYSTEM,
    Context,
    Duly,
    Flow,
    Policies,
    RetryPolicy,
    ScheduleCollection,
    cron,
    every,
    once,
    user,
    weekly,
    workspace,
)
from duly.model.claims import ClaimRequest, ProgressNote
from duly.model.jobs import LeasedJob, WorkerId
from duly.model.plans import PlanRequest
from duly.model.queues import WorkerInfo
from duly.model.schedules import Misfire
from duly.rules.outcomes import Failed, Outcome, Succeeded, decide
from duly.testing import ManualClock
from duly.triggers.instants import from_ms

T = TypeVar("T")
SECRET = "sk-live-4711-secret-of-ada"  # noqa: S105
SECRET_PARTS = ("sk-live", "4711-secret", "secret-of-ada")
"""Parts of a secret in inputs, errors, results and progress, which no page may show."""
QUEUES = ("default", "mail", "reports")
WORKERS = (WorkerId("worker_019a1c7e4f20"), WorkerId("worker_019a1c7e51b8"))
QUICKLY = RetryPolicy(attempts=3, backoff="fixed", first_delay_ms=5_000, jitter=False)


def make_flows() -> list[Flow]:
    """Return three flows as an application would have them."""
    reminders, reports, billing = Flow("reminders"), Flow("reports"), Flow("billing")

    @reminders.action(queue="mail", retry=QUICKLY)
    async def send_digest(input: dict[str, Any], ctx: Context) -> None:  # noqa: A002
        """Mail a digest."""

    @reminders.action(queue="mail")
    async def send_invoice(input: dict[str, Any], ctx: Context) -> None:  # noqa: A002
        """Mail an invoice."""

    @reports.action(queue="reports", redact=("ssn",))
    async def build(input: dict[str, Any], ctx: Context) -> None:  # noqa: A002
        """Build a report."""

    @billing.action(retry=QUICKLY)
    async def charge(input: dict[str, Any], ctx: Context) -> None:  # noqa: A002
        """Charge a customer."""

    return [reminders, reports, billing]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new thread, since the browser's driver has a loop on this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@dataclass(frozen=True, slots=True)
class Sample:
    """The application and the clock of its store."""

    app: Duly
    clock: ManualClock


def sample(url: str = "memory:", *, days: int = 10) -> Sample:
    """Return the application after `days` of simulated operation."""
    clock = ManualClock(datetime.now(UTC).replace(microsecond=0) - timedelta(days=days))
    app = Duly(url, flows=make_flows(), clock=clock)
    run(_simulate(app, clock, days))
    return Sample(app, clock)


async def _simulate(app: Duly, clock: ManualClock, days: int) -> None:
    end = clock.now() + timedelta(days=days)
    await _make_schedules(app)
    chance = random.Random(7)
    lately = end - timedelta(hours=1)
    while clock.now() < end:
        (first,) = await app.store.list_rows(limit=1)
        step = timedelta(minutes=1 if clock.now() >= lately else 60)
        soon = max(clock.now() + timedelta(seconds=1), from_ms(first.run_at_ms))
        clock.set(min(soon, clock.now() + step, end))
        if clock.now() > lately:
            await _enqueue_some(app, chance.randint(3, 14))
        await _work(app, clock, chance)
    await _leave_things_open(app)
    if url_is_shared(app):
        await app.close()


def url_is_shared(app: Duly) -> bool:
    """Return whether the data outlives the connection."""
    return not app.url.startswith("memory")


async def _make_schedules(app: Duly) -> None:
    token = {"to": "ada@example.org", "api_token": SECRET}
    reminders = ScheduleCollection(app.store, "reminders")
    for name, zone, at in (
        ("ada", "Europe/Berlin", "0 9 * * MON-FRI"),
        ("bo", "America/New_York", "30 7 * * *"),
        ("chidi", "Africa/Lagos", "0 18 * * FRI"),
        ("dai", "Asia/Tokyo", "15 8 * * *"),
        ("eva", "Australia/Lord_Howe", "0 6 * * *"),
    ):
        await reminders.of(user(name)).create(
            "daily-digest", cron(at, tz=zone), action="send_digest", input=token
        )
    await reminders.of(user("ada")).create(
        "standup",
        weekly({"mon": "09:45", "wed": "09:45", "thu": ["09:45", "16:00"]}, tz="Europe/Berlin"),
        action="send_digest",
        input=token,
        description="Before the team meets",
    )
    invoices = reminders.of(workspace("acme"))
    await invoices.create("invoices", cron("0 6 * * *"), action="send_invoice", input=token)
    await invoices.create("quiet-hours", every(minutes=30), action="send_digest", input=token)
    for number in range(40):
        zone = ("Europe/Paris", "America/Chicago", "Asia/Kolkata")[number % 3]
        at = f"{number % 4 * 15} {8 + number % 2} * * MON-FRI"
        mine = reminders.of(user(f"person-{number:03}"))
        await mine.create("morning", cron(at, tz=zone), action="send_digest", input=token)
    await invoices.pause("quiet-hours", "until the new wording is approved")
    await _make_system_schedules(app, token)


async def _make_system_schedules(app: Duly, token: dict[str, str]) -> None:
    reports = ScheduleCollection(app.store, "reports")
    await reports.of(SYSTEM).create(
        "nightly", cron("0 2 * * *"), action="build", input={"depth": 3, **token}
    )
    await reports.of(SYSTEM).create("hourly", cron("0 * * * *"), action="build", input=token)
    for number in range(12):
        await reports.of(workspace(f"team-{number:02}")).create(
            "weekly-report", cron(f"{number * 5} 8-17/3 * * *"), action="build", input=token
        )
    billing = ScheduleCollection(app.store, "billing")
    await billing.of(SYSTEM).create(
        "sync-ledger",
        every(minutes=30),
        action="charge",
        input=token,
        policies=Policies(misfire=Misfire("run_once"), retry=QUICKLY),
    )
    await billing.of(workspace("globex")).create(
        "launch", once(datetime.now(UTC) + timedelta(hours=30)), action="charge", input=token
    )


async def _work(app: Duly, clock: ManualClock, chance: random.Random) -> None:
    """Plan what is due and finish all jobs that can be claimed."""
    store = app.store
    await store.plan_occurrences(PlanRequest(limit=500))
    await store.promote_due()
    clock.advance(milliseconds=chance.choice((20, 60, 90, 140, 300, 900)))
    request = ClaimRequest(worker=WORKERS[0], queues=QUEUES, limit=250)
    claims = await store.claim_jobs(request)
    if claims.jobs:
        await store.finish([decide(job, _outcome(job, chance)) for job in claims.jobs])


async def _enqueue_some(app: Duly, number: int) -> None:
    letters = [{"to": f"{each}@example.org", "password": SECRET} for each in range(number)]
    await app.client.enqueue_many("reminders.send_digest", letters, workspace="acme")


def _outcome(job: LeasedJob, chance: random.Random) -> Outcome:
    if job.action.endswith("charge") and chance.random() < 0.25:
        is_final = chance.random() < 0.15
        return Failed(f"PaymentError: card of key {SECRET} was declined (402)", is_final)
    if job.schedule_id is None and chance.random() < 0.02:
        return Failed("ConnectionError: smtp.example.org refused the connection", is_final=True)
    if job.action.endswith("send_invoice") and chance.random() < 0.2:
        return Failed("TimeoutError: the mail server did not answer in 30 s", is_final=True)
    return Succeeded(f'{{"sent": {chance.randint(1, 90)}, "session_token": "{SECRET}"}}')


async def _leave_things_open(app: Duly) -> None:
    """Leave waiting, running, retrying and dead jobs, live workers, a lock and a paused queue."""
    store = app.store
    for number, worker in enumerate(WORKERS):
        host = f"app-{number + 1}.internal"
        await store.beat(WorkerInfo(worker, host, 4_000 + number, QUEUES, 16, 3 - number))
    letter = {"to": "bo@example.org", "password": SECRET, "rows": 1_200}
    for number in range(7):
        space = f"team-{number % 3:02}"
        await app.client.enqueue("reports.build", letter, workspace=space)
    await app.client.enqueue("billing.charge", letter, key="charge-1", correlation_id="order-77")
    later = timedelta(minutes=20)
    await app.client.enqueue("reminders.send_invoice", letter, delay=later, workspace="acme")
    request = ClaimRequest(worker=WORKERS[1], queues=("default", "reports"), limit=4)
    claims = await store.claim_jobs(request)
    broken, *running = claims.jobs
    await store.finish([decide(broken, Failed(f"ValueError: bad key {SECRET}", is_final=True))])
    for job in running:
        progress = '{"percent": 40, "message": "480 of 1,200"}'
        await store.note_progress([ProgressNote(job.id, job.fence, progress)])
    await store.acquire_lock("nightly-export", "worker_019a1c7e4f20", 600_000)
    await app.admin.pause("bulk", "the provider asked us to wait", by="ada")
