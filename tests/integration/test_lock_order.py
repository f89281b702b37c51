"""Transactions on PostgreSQL lock several rows of one kind in the order of their keys.

Another session holds the first row. Whoever waits for it must not hold a later one: a transaction
that locks both in order would deadlock with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from duly.engine.ids import Ids
from duly.engine.jobs import jobs as cases
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, LeasedJob, WorkerId
from duly.model.plans import PlanRequest, PlanSettings
from duly.rules.outcomes import Failed, Succeeded, decide
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.fast import claims
from duly.stores.sql.fast.planning import plan_occurrences
from duly.stores.sql.source import transact
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import a_job, insert
from duly.testing.conformance.samples import (
    MINUTELY,
    START_MS,
    a_definition,
    a_write,
    put,
)
from duly.testing.conformance.suite import START
from tests.integration.overlapping import WAIT_LIMIT_S, overlapping

pytestmark = pytest.mark.timeout(2 * WAIT_LIMIT_S)
WORKER = WorkerId("worker_1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def store(postgres_url: str, clock: ManualClock) -> Iterator[SqlStore]:
    planning = PlanSettings(look_ahead_ms=0)  # else the first runs are planned when written
    store = cast(SqlStore, open_store(postgres_url, clock=clock, planning=planning))
    yield store
    asyncio.run(store.close())


def leased(store: SqlStore, *names: str, **fields: Any) -> dict[str, LeasedJob]:
    """Insert jobs and claim them."""

    async def claim() -> dict[str, LeasedJob]:
        await insert(store, *(a_job(name, **fields) for name in names))
        found = await store.claim_jobs(ClaimRequest(WORKER, limit=1_000, lease_ms=1_000))
        return {job.id: job for job in found.jobs}

    return asyncio.run(claim())


def waits_without_holding(
    store: SqlStore, first: str, verb: Callable[[Db], object], later: Sequence[str]
) -> bool:
    """Lock what `first` selects, run the verb until it waits, and try to lock what follows."""
    held: list[bool] = []

    def lock(db: Db) -> None:
        db.connection.execute(text(f"{first} FOR UPDATE")).all()

    def look() -> None:
        with store._engine.connect() as connection:
            for each in later:
                try:
                    with connection.begin():
                        connection.execute(text(f"{each} FOR UPDATE NOWAIT")).all()
                    held.append(False)
                except OperationalError:
                    held.append(True)

    overlapping(store, lock, verb, look)
    return not any(held)


@pytest.mark.parametrize(
    "outcomes",
    [
        pytest.param({"b": Succeeded(), "a": Succeeded()}, id="one shape"),
        pytest.param({"b": Failed("x", is_final=True), "a": Succeeded()}, id="two shapes"),
    ],
)
def test_finish_locks_jobs_in_order(store: SqlStore, outcomes: dict[str, Any]) -> None:
    jobs = leased(store, "a", "b")
    finishes = [decide(jobs[name], outcome) for name, outcome in outcomes.items()]
    a, b = ("SELECT id FROM duly_jobs WHERE id = 'a'", "SELECT id FROM duly_jobs WHERE id = 'b'")
    assert waits_without_holding(store, a, lambda db: claims.finish(db, finishes), [b])


def test_a_batch_is_finished_in_order(store: SqlStore) -> None:
    """The rows are stored in another order than that of their ids."""
    names = [f"job_{number:03}" for number in range(300)]
    jobs = leased(store, *reversed(names))
    finishes = [decide(jobs[name], Succeeded()) for name in names[100:] + names[:100]]
    first = "SELECT id FROM duly_jobs WHERE id = 'job_000'"
    rest = [
        f"SELECT id FROM duly_jobs WHERE id = 'job_{number:03}'"  # noqa: S608
        for number in (1, 150, 299)
    ]
    assert waits_without_holding(store, first, lambda db: claims.finish(db, finishes), rest)


def test_lost_jobs_release_markers_in_order(store: SqlStore, clock: ManualClock) -> None:
    """The job of the later schedule has the earlier id."""
    asyncio.run(insert(store, *map(_at_most_once, (("a", "sch_2"), ("b", "sch_1")))))
    asyncio.run(store.claim_jobs(ClaimRequest(WORKER, lease_ms=1_000)))
    asyncio.run(store.start_jobs(WORKER, [(JobId("a"), 1), (JobId("b"), 1)]))
    with store._engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO duly_running (schedule_id, job_id, since_ms) "
                "VALUES ('sch_2', 'a', 0), ('sch_1', 'b', 0)"
            )
        )
    clock.advance(hours=1)
    one = "SELECT * FROM duly_running WHERE schedule_id = 'sch_1'"
    two = "SELECT * FROM duly_running WHERE schedule_id = 'sch_2'"

    def release(db: Db) -> object:
        return transact(db, Ids(), cases.release_expired)

    assert waits_without_holding(store, one, release, [two])


def test_planning_locks_markers_before_it_adds_any(store: SqlStore, clock: ManualClock) -> None:
    """The first schedule has no marker yet; the second has one, held by another session."""
    written = asyncio.run(put(store, *(a_write(name, a_definition(MINUTELY)) for name in "ab")))
    one, two = sorted(each.schedule.id for each in written)
    asyncio.run(insert(store, a_job("old", schedule_id=two, nominal_ms=START_MS)))
    with store._engine.begin() as connection:
        connection.execute(
            text("INSERT INTO duly_running (schedule_id, job_id, since_ms) VALUES (:id, 'old', 0)"),
            {"id": two},
        )
    clock.advance(minutes=1)
    found: list[bool] = []

    def plan(db: Db) -> object:
        return plan_occurrences(db, PlanRequest())

    def lock(db: Db) -> None:
        db.connection.execute(
            text("SELECT * FROM duly_running WHERE schedule_id = :id FOR UPDATE"), {"id": two}
        ).all()

    def look() -> None:
        # An insert of the same key would wait for an uncommitted one.
        with store._engine.connect() as connection, connection.begin() as transaction:
            connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
            try:
                connection.execute(
                    text(
                        "INSERT INTO duly_running (schedule_id, job_id, since_ms) "
                        "VALUES (:id, 'probe', 0)"
                    ),
                    {"id": one},
                )
                found.append(True)
            except OperationalError:
                found.append(False)
            transaction.rollback()

    overlapping(store, lock, plan, look)
    assert found == [True]


def _at_most_once(names: tuple[str, str]) -> Any:
    job_id, schedule_id = names
    return a_job(
        job_id,
        delivery="at_most_once",
        schedule_id=schedule_id,
        nominal_ms=START_MS,
        turn="asks",
        policies="{}",
    )
