"""An application for tests of operators' tools, with secrets in inputs, errors and notes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from duly import Duly, Flow, cron
from duly.flows.collections import ScheduleCollection
from duly.model.claims import ClaimRequest
from duly.model.jobs import WorkerId
from duly.model.plans import PlanRequest
from duly.model.scopes import SYSTEM, user
from duly.rules.outcomes import Failed, Succeeded, decide
from duly.testing import ManualClock

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECRET = "hunter22-hunter22"  # noqa: S105
SSN = "078-05-1120"
HOURLY = cron("0 * * * *", tz="Europe/Berlin")

crm = Flow("crm")


@dataclass
class Person:
    """Input of the action."""

    name: str
    user_ssn: str
    password: str


@crm.action(redact=["ssn"])
async def greet(person: Person) -> None:
    """Do nothing: the tests finish the jobs without running them."""


app = Duly("memory:", flows=[crm])


async def fill(url: str) -> None:
    """Store, with a clock three hours ago, a failed schedule, another one, a queue and a lock."""
    clock = ManualClock(START)
    async with Duly(url, flows=[crm], clock=clock) as office:
        store = office.store
        ada = ScheduleCollection(store, "crm").of(user("ada"))
        person = {"name": "Ada", "user_ssn": SSN, "password": SECRET}
        await ada.create("digest", HOURLY, action="greet", input=person)
        await ada.create("weekly", cron("0 9 * * MON"), action="greet", note=f"pin {SECRET}")
        await ada.pause("weekly", "on holiday")
        await ScheduleCollection(store, "crm").of(SYSTEM).create("nightly", HOURLY, action="greet")
        for outcome in (Succeeded(), Failed(f"password={SECRET}", is_final=True)):
            clock.advance(hours=1, seconds=1)
            await store.plan_occurrences(PlanRequest())
            claims = await store.claim_jobs(ClaimRequest(worker=WorkerId("w"), limit=10))
            await store.finish([decide(job, outcome) for job in claims.jobs])
        await office.admin.pause("mail", "repairs", by="ops")
        await store.acquire_lock("import", "ada", 86_400_000)
