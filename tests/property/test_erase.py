"""Tests of erasure after random operations of two owners: the data of the other is unchanged."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from duly.model.claims import ClaimRequest
from duly.model.documents import DocumentWrite
from duly.model.jobs import JobId, NewJob, WorkerId
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.model.scopes import Scope, workspace_of
from duly.model.stored_jobs import JobFilter
from duly.model.upkeep import Erased
from duly.rules.outcomes import Failed, Succeeded, decide
from duly.stores import open_store
from duly.stores.port import Store
from duly.testing import ManualClock
from duly.triggers import every
from tests.property.strategies import DEPTH

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
STEPS = 60
PAIRS = [("user:ada", "user:bob"), ("workspace:a", "user:a"), ("user:a", "workspace:user:a")]
WORKER = WorkerId("worker_1")


async def act(store: Store, clock: ManualClock, random: Random, scope: str, number: int) -> None:
    """Run a random operation of an owner, or a planner or worker step."""
    key = ScheduleKey("mail", scope, f"s{random.randrange(4)}")
    match random.randrange(8):
        case 0 | 1:
            definition = Definition(
                every(minutes=random.randint(1, 90)), "send", enabled=number % 5 > 0
            )
            write = ScheduleWrite(key, ScheduleId(f"sch_{number}"), definition, by=scope)
            await store.put_schedules([write])
        case 2:
            await store.delete_schedule(key, by=scope)
        case 3:
            name = f"d{random.randrange(4)}"
            entries = (("tag", f"{random.randrange(3)}"),)
            await store.put_document(
                DocumentWrite("notes", scope, name, f"doc_{number}", "{}", entries)
            )
        case 4:
            space = workspace_of(Scope.parse(scope))
            job = NewJob(
                id=JobId(f"job_{number:04}"), action="mail.send", scope=scope, workspace=space,
                key=random.choice([None, "k1", "k2"]),
            )  # fmt: skip
            await store.insert_jobs([job])
        case 5:
            clock.advance(minutes=random.randint(1, 120))
            await store.plan_occurrences(PlanRequest())
            await store.promote_due()
        case 6:
            for taken in (await store.claim_jobs(ClaimRequest(worker=WORKER, limit=2))).jobs:
                outcome = Failed("no") if random.random() < 0.3 else Succeeded()
                await store.finish([decide(taken, outcome)])
        case _:
            for each in (await store.list_jobs(JobFilter(), limit=3))[:1]:
                if each.scope == scope:
                    await store.cancel_job(each.id, by=scope)


async def stored(store: Store, scope: str, schedule_ids: set[ScheduleId]) -> dict[str, object]:
    """Return everything that can be read about an owner."""
    jobs = [job for job in await store.list_jobs(JobFilter(), limit=1_000) if job.scope == scope]
    return {
        "schedules": await store.list_schedules("mail", scope),
        "rows": [row for row in await store.list_rows(limit=1_000) if row.scope == scope],
        "documents": await store.list_documents("notes", scope),
        "found": [
            each
            for tag in "012"
            for each in await store.find_documents("notes", "tag", tag)
            if each.scope == scope
        ],
        "jobs": jobs,
        "job events": [await store.job_events(job.id) for job in jobs],
        "ledger": [
            each
            for schedule_id in sorted(schedule_ids)
            for each in await store.list_occurrences(schedule_id)
            if each.scope == scope
        ],
    }


async def walk(url: str, seed: int) -> None:
    random, clock = Random(seed), ManualClock(START)
    erased, kept = PAIRS[seed % len(PAIRS)]
    store = open_store(url, clock=clock)
    for number in range(STEPS):
        await act(store, clock, random, random.choice([erased, kept]), number)
    ids = {ScheduleId(f"sch_{number}") for number in range(STEPS)}
    facts = {each: await store.schedule_events(each) for each in ids}
    before, events = await stored(store, kept, ids), sum(map(len, facts.values()))
    total, limit = Erased(), random.choice([1, 3, 1_000])
    while True:
        total += await store.erase(erased, cursor=total.cursor, limit=limit)
        if total.cursor is None:
            break
    assert await stored(store, kept, ids) == before
    assert not any((await stored(store, erased, ids)).values()) or total.running
    left = [fact for each in ids for fact in await store.schedule_events(each)]
    assert erased not in {fact.by for fact in left}
    assert len(left) == events - sum(
        len(found) for found in facts.values() if erased in {fact.by for fact in found}
    )
    await store.close()


@pytest.mark.parametrize("seed", range(4 * DEPTH))
def test_the_other_owner_is_left_alone_in_memory(seed: int) -> None:
    asyncio.run(walk("memory:", seed))


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_the_other_owner_is_left_alone_in_sqlite(seed: int, tmp_path: Path) -> None:
    asyncio.run(walk(f"sqlite:///{tmp_path}/two.db", seed))


@pytest.mark.parametrize("seed", [2])
def test_the_other_owner_is_left_alone_in_postgresql(seed: int, postgres_url: str) -> None:
    asyncio.run(walk(postgres_url, seed))
