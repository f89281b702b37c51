"""Erasing an owner removes its name and secrets from every table and leaves the rest unchanged."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, select
from sqlalchemy.engine import make_url

from duly import cron
from duly.app import Duly
from duly.errors import InvalidInput
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest
from duly.model.documents import DocumentWrite, Written
from duly.model.jobs import WorkerId
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.model.scopes import SYSTEM, Scope, user, workspace
from duly.model.upkeep import Erased
from duly.rules.outcomes import Cancelled, Failed, decide
from duly.stores.port import Store
from duly.stores.sql.schema.tables import make_tables
from duly.testing import ManualClock
from tests.integration.working import in_loop

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECRET = "correct-horse"  # noqa: S105
Table = dict[str, list[str]]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/erase.db"
    else:
        yield request.getfixturevalue("postgres_url")


def dump(url: str) -> Table:
    """Return every row of every table as text."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    engine = create_engine(parsed if is_file else parsed.set(drivername="postgresql+psycopg"))
    tables = make_tables()
    with engine.connect() as connection:
        names = set(inspect(connection).get_table_names())
        assert names == set(tables.metadata.tables)
        found = {
            name: [repr(tuple(row)) for row in connection.execute(select(table))]
            for name, table in tables.metadata.tables.items()
        }
    engine.dispose()
    return found


def naming(found: Table, *words: str) -> dict[str, int]:
    """Return how many rows of each table contain one of the words."""
    counts = {
        name: sum(any(word in row for word in words) for row in rows)
        for name, rows in found.items()
    }
    return {name: count for name, count in counts.items() if count}


async def fill(store: Store, clock: ManualClock, scope: Scope, secret: str) -> None:
    """Write rows to every table that refers to owners, each with the owner's name or the secret."""
    who, text = scope.id, str(scope)
    for name in ("daily", "gone"):
        key = ScheduleKey("mail", text, f"{name}-{who}")
        said = {"to": secret}
        for definition in (
            Definition(cron("0 * * * *"), "send", input=said, description=secret),
            Definition(cron("0 * * * *"), "send", input=said, enabled=False, note=secret),
            Definition(cron("0 * * * *"), "send", input=said, note=secret),
        ):
            write = ScheduleWrite(key, ScheduleId(f"sch_{name}_{who}"), definition, by=text)
            await store.put_schedules([write])
    write_document = DocumentWrite(
        "notes", text, f"note-{who}", f"doc-{who}", f'{{"x":"{secret}"}}', (("tag", secret),)
    )
    assert isinstance(await store.put_document(write_document), Written)
    clock.advance(hours=1)
    await store.plan_occurrences(PlanRequest())
    await store.promote_due()
    await store.delete_schedule(ScheduleKey("mail", text, f"gone-{who}"), by=text)


async def work(app: Duly, scope: Scope, secret: str) -> None:
    """Leave dead, waiting and cancelled jobs with keys, and tokens that were leased for them."""
    for key in ("one", "two", "three"):
        await app.client.enqueue(
            "mail.send", {"to": secret}, scope=scope, key=f"{key}-{secret}", queue=f"q-{key}"
        )
    worker = WorkerId("worker_1")
    claim = ClaimRequest(worker=worker, queues=("q-one",), limit=1, fair=True)
    (job,) = (await app.store.claim_jobs(claim)).jobs
    await app.store.finish([decide(job, Failed(secret, is_final=True))])
    other = await app.client.enqueue("mail.send", None)
    await app.client.cancel(other.job_id, by=str(scope))


@in_loop
async def test_nothing_is_left_of_an_owner(url: str) -> None:
    clock = ManualClock(START)
    app = Duly(url, flows=[Flow("mail")], clock=clock)
    async with app:
        for scope, secret in ((user("ada-77"), SECRET), (workspace("acme"), "battery-staple")):
            await fill(app.store, clock, scope, secret)
            await work(app, scope, secret)
        before = await asyncio.to_thread(dump, url)
        assert {
            "duly_resources",
            "duly_resource_index",
            "duly_schedule_rules",
            "duly_schedule_events",
            "duly_occurrences",
            "duly_jobs",
            "duly_job_events",
            "duly_idempotency",
            "duly_queue_tokens",
        } <= set(naming(before, "ada-77", SECRET))
        steps: list[Erased] = []
        erased = await app.admin.erase(user("ada-77"), steps.append)
        after = await asyncio.to_thread(dump, url)
        assert naming(after, "ada-77", SECRET) == {}
        assert naming(after, "acme", "battery") == naming(before, "acme", "battery")
        assert (erased.schedules, erased.documents, erased.running) == (1, 1, 0)
        assert steps[-1] == erased
        assert len(steps) > 1
        assert await app.admin.erase("workspace:acme") != Erased()
        assert naming(await asyncio.to_thread(dump, url), "acme", "battery") == {}
        assert await app.admin.erase("workspace:acme") == Erased()


@in_loop
async def test_running_jobs_are_erased_by_a_second_call(url: str) -> None:
    app = Duly(url, flows=[Flow("mail")], clock=ManualClock(START))
    async with app:
        await app.client.enqueue("mail.send", {"to": SECRET}, scope=user("ada-77"))
        claim = ClaimRequest(worker=WorkerId("worker_1"))
        (job,) = (await app.store.claim_jobs(claim)).jobs
        assert (await app.admin.erase(user("ada-77"))).running == 1
        assert naming(await asyncio.to_thread(dump, url), SECRET) == {"duly_jobs": 1}
        await app.store.finish([decide(job, Cancelled())])
        assert (await app.admin.erase(user("ada-77"))).jobs == 1
        assert naming(await asyncio.to_thread(dump, url), SECRET, "ada-77") == {}


@in_loop
async def test_the_system_is_not_erased() -> None:
    async with Duly("memory:") as app:
        with pytest.raises(InvalidInput, match="cannot be erased"):
            await app.admin.erase(SYSTEM)
