"""Concurrent verbs on PostgreSQL: the one that waited continues from the other's result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from duly.engine.ids import Ids
from duly.engine.jobs import jobs
from duly.engine.schedules import extras, schedules
from duly.engine.transaction import Tx
from duly.errors import BackendUnavailable
from duly.model.documents import Refused
from duly.model.jobs import Job, JobId, LeasedJob
from duly.model.ledger import OccurrenceState
from duly.model.plans import Backfill, BackfillReport, PlanRequest
from duly.model.schedule_writes import ScheduleWritten
from duly.model.schedules import Limits, Misfire, Policies, ScheduleId
from duly.model.stored_jobs import JobRefused
from duly.rules.outcomes import Failed, Succeeded, decide
from duly.rules.planning import PlannedOccurrence
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.fast import claims, planning
from duly.stores.sql.rows import ledger
from duly.stores.sql.source import transact
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import a_job, claim_one, insert
from duly.testing.conformance.planning.samples import FROM_TWO, plan
from duly.testing.conformance.samples import (
    MINUTE_MS,
    MINUTELY,
    START_MS,
    a_definition,
    a_key,
    a_write,
    put,
)
from duly.testing.conformance.suite import START
from tests.integration.overlapping import WAIT_LIMIT_S, overlapping

MISSED = OccurrenceState.MISSED
ID = ScheduleId("id-a")
pytestmark = pytest.mark.timeout(2 * WAIT_LIMIT_S)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def store(postgres_url: str, clock: ManualClock) -> Iterator[SqlStore]:
    store = cast(SqlStore, open_store(postgres_url, clock=clock))
    yield store
    asyncio.run(store.close())


def minute(number: int) -> int:
    """Return a nominal time of the schedule."""
    return START_MS + number * MINUTE_MS


def test_the_next_in_line_runs_when_the_first_is_cancelled(store: SqlStore) -> None:
    async def begin() -> LeasedJob:
        await put(store, a_write(definition=a_definition(MINUTELY)))
        await store.backfill(Backfill(ID, minute(-3), minute(0), 10))
        return await claim_one(store)

    running = asyncio.run(begin())
    rows = asyncio.run(store.list_occurrences(ID, before_ms=minute(0)))
    last, first, *_ = [JobId(str(row.job_id)) for row in rows]
    overlapping(
        store,
        lambda db: transact(db, Ids(), jobs.cancel_job, first),
        lambda db: claims.finish(db, [decide(running, Succeeded())]),
    )
    assert asyncio.run(claim_one(store)).id == last


async def parts(store: SqlStore) -> list[tuple[int, int, str]]:
    """Return the rows of the ledger: first and last minute, and state."""
    found = await store.list_occurrences(ID)
    return [
        (
            (each.nominal_ms - START_MS) // MINUTE_MS,
            (each.until_ms - START_MS) // MINUTE_MS,
            each.state,
        )
        for each in reversed(found)
    ]


async def an_outage(store: SqlStore, clock: ManualClock) -> None:
    """Store a schedule whose minutes 2 to 20 have passed without a planner."""
    policies = Policies(misfire=Misfire("skip"), overlap="allow", grace_ms=0)
    await put(store, a_write(definition=a_definition(FROM_TWO, policies=policies)))
    clock.advance(minutes=20, seconds=30)


def backfill_of(first: int, last: int) -> Callable[[Db], BackfillReport | None]:
    return lambda db: transact(
        db, Ids(), extras.backfill, Backfill(ID, minute(first), minute(last) + 1, 100)
    )


def planned(first: int, last: int) -> list[tuple[int, int, str]]:
    return [(each, each, "planned") for each in range(first, last + 1)]


def test_two_backfills_of_one_run_of_times_lose_nothing(
    store: SqlStore, clock: ManualClock
) -> None:
    asyncio.run(an_outage(store, clock))
    asyncio.run(plan(store, look_ahead_ms=0))
    assert asyncio.run(parts(store)) == [(2, 20, "missed")]
    overlapping(store, backfill_of(2, 4), backfill_of(5, 7))
    assert asyncio.run(parts(store)) == [*planned(2, 7), (8, 20, "missed")]


@pytest.mark.parametrize("first", [2, 10, 20])
def test_a_planner_leaves_out_what_is_being_backfilled(
    store: SqlStore, clock: ManualClock, first: int
) -> None:
    asyncio.run(an_outage(store, clock))
    last = min(first + 1, 20)
    overlapping(
        store,
        backfill_of(first, last),
        lambda db: planning.plan_occurrences(db, PlanRequest(limit=10, look_ahead_ms=0)),
    )
    asyncio.run(plan(store, look_ahead_ms=0))
    before = [(2, first - 1, "missed")] if first > 2 else []
    after = [(last + 1, 20, "missed")] if last < 20 else []
    assert asyncio.run(parts(store)) == [*before, *planned(first, last), *after]


def test_a_run_of_times_is_neither_dropped_nor_written_over(
    store: SqlStore, clock: ManualClock
) -> None:
    """A verb without the lock loses the race and is run again."""

    def entries(first: int, last: int, state: OccurrenceState = MISSED) -> list[ledger.Entry]:
        count = last - first + 1
        made = PlannedOccurrence(ID, minute(first), minute(last), count, minute(first), state, None)
        return [ledger.entry_of(made, a_key(), START_MS)]

    # Its times are free, but using a single one would leave the others without a row.
    store._in_transaction(ledger.write, entries(2, 9, OccurrenceState.WITHDRAWN))
    assert store._in_transaction(ledger.write, entries(2, 2)) == {(ID, minute(2))}
    store._in_transaction(ledger.write, entries(12, 12))
    with pytest.raises(BackendUnavailable, match="a range of times; gave up after 8 attempts"):
        store._in_transaction(ledger.write, entries(12, 20))
    assert asyncio.run(parts(store)) == [(2, 9, "withdrawn"), (12, 12, "missed")]


MARKED = "SELECT state, SUM(jobs) FROM duly_job_marks WHERE state <> 'processing' GROUP BY state"
STORED = "SELECT state, COUNT(*) FROM duly_jobs GROUP BY state"


@pytest.mark.parametrize(
    ("move", "target", "marked"),
    [(jobs.delete_job, "deleted", [("deleted", 1)]), (jobs.retry_job, "queued", [])],
)
def test_a_job_that_ends_during_a_request_is_marked_once(
    store: SqlStore,
    move: Callable[[Tx, JobId], Job | JobRefused],
    target: str,
    marked: list[tuple[str, int]],
) -> None:
    async def begin() -> LeasedJob:
        await insert(store, a_job())
        return await claim_one(store)

    running = asyncio.run(begin())
    end = decide(running, Failed("no hope", is_final=True))
    _, moved = overlapping(
        store,
        lambda db: claims.finish(db, [end]),
        lambda db: transact(db, Ids(), move, running.id),
    )
    assert moved.state == target
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql(MARKED).all() == marked
        assert connection.exec_driver_sql(STORED).all() == [(target, 1)]


@pytest.mark.parametrize(("scope", "answer"), [("user:ada", "full"), ("user:bob", None)])
def test_concurrent_creates_keep_the_limit(store: SqlStore, scope: str, answer: str | None) -> None:
    one = Limits(schedules=1)

    def create(db: Db, name: str, scope: str) -> ScheduleWritten | Refused:
        write = a_write(name, key=a_key(name, scope=scope), limits=one)
        return transact(db, Ids(), schedules.put_schedules, [write])[0]

    first, second = overlapping(
        store, lambda db: create(db, "a", "user:ada"), lambda db: create(db, "b", scope)
    )
    assert isinstance(first, ScheduleWritten)
    assert (second.reason if isinstance(second, Refused) else None) == answer
