"""Plans of what pages read: with 100,000 jobs and 20,000 rows, each examines what it may."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from duly.glass_store import AuditEntry
from duly.jobs import JobState
from duly.occurrences import IndexRow
from duly.schedules import ScheduleId
from duly.stores import open_store
from duly.stores.sql.store import SqlStore
from tests.plans.test_job_plans import PAIRS, Verb, examined, fill, plans_of
from tests.servers import PostgresServer

ROWS = 5_000
MOST = 200
HOURLY = '{"expression":"0 * * * *","kind":"cron","tz":"UTC","v":1}'
START_MS = 1_900_000_800_000


async def fill_more(url: str) -> None:
    """Index rows and audit entries beside the jobs."""
    await fill(url)
    store = cast(SqlStore, open_store(url))
    for number in range(ROWS):
        at_ms = START_MS + number * 1_000
        name = ScheduleId(f"sch_{number:06}")
        await store.upsert(IndexRow(name, "crm", "system", f"n{number}", HOURLY, at_ms, at_ms))
    for number in range(2_000):
        await store.append_audit(AuditEntry("ada", "job.retry", f"job:{number}"))
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    await store.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        file: Path = tmp_path_factory.mktemp("plans") / "glass.db"
        asyncio.run(fill_more(f"sqlite:///{file}"))
        yield f"sqlite:///{file}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    made = server.create()
    asyncio.run(fill_more(made))
    yield made
    server.drop(made)


READS: dict[str, tuple[Verb, int]] = {
    "states": (lambda store: store.count_states(MOST), MOST),
    "queues": (lambda store: store.count_queues(MOST), 3 * MOST),
    "workspaces": (lambda store: store.count_workspaces("default", 50), 50 * PAIRS),
    "ends": (lambda store: store.count_ends(0, MOST), 3 * MOST),
    "glance": (lambda store: store.glance(MOST), MOST),
    "audit": (lambda store: store.list_audit(limit=10), 10),
    "audit of one": (lambda store: store.list_audit(target="job:7"), 2),
}


@pytest.mark.parametrize("name", READS)
def test_pages_examine_what_they_may(url: str, name: str) -> None:
    verb, most = READS[name]
    plans = plans_of(url, verb)
    for plan in plans:
        if url.startswith("sqlite"):
            scans = re.findall(r"SCAN (?:duly_\w+|j)\b(?! USING)[^\n]*", plan)
            assert [each for each in scans if "duly_queues" not in each] == [], plan
        else:
            assert examined(plan) <= most, plan


def test_counts_are_right_where_they_are_small(url: str) -> None:
    async def check() -> None:
        store = open_store(url)
        counts = await store.count_states()
        assert counts[JobState.PROCESSING] == 500
        assert counts[JobState.SUCCEEDED] == 4_000
        assert counts[JobState.QUEUED] == 10_000
        await store.close()

    asyncio.run(check())
