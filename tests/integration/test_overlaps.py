"""Verbs that meet on PostgreSQL: whoever waited goes on from what the other left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from duly.jobs import JobId, LeasedJob
from duly.outcomes import Succeeded, decide
from duly.plan_store import Backfill
from duly.schedules import ScheduleId
from duly.stores import open_store
from duly.stores.sql import job_claims, job_moves
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from duly.testing.conformance.job_samples import claim_one
from duly.testing.conformance.samples import (
    MINUTE_MS,
    MINUTELY,
    START_MS,
    a_definition,
    a_write,
    put,
)
from duly.testing.conformance.suite import START
from tests.integration.overlapping import PATIENCE_S, overlapping

ID = ScheduleId("id-a")
pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def store(postgres_url: str, clock: ManualClock) -> Iterator[SqlStore]:
    store = cast(SqlStore, open_store(postgres_url, clock=clock))
    yield store
    asyncio.run(store.close())


def minute(number: int) -> int:
    """A nominal time of the schedule."""
    return START_MS + number * MINUTE_MS


def test_the_next_in_line_has_its_turn_where_the_first_was_just_cancelled(store: SqlStore) -> None:
    async def begin() -> LeasedJob:
        await put(store, a_write(definition=a_definition(MINUTELY)))
        await store.backfill(Backfill(ID, minute(-3), minute(0), 10))
        return await claim_one(store)

    running = asyncio.run(begin())
    rows = asyncio.run(store.list_occurrences(ID, before_ms=minute(0)))
    last, first, *_ = [JobId(str(row.job_id)) for row in rows]
    overlapping(
        store,
        lambda db: job_moves.cancel_job(db, first),
        lambda db: job_claims.finish(db, [decide(running, Succeeded())]),
    )
    assert asyncio.run(claim_one(store)).id == last
