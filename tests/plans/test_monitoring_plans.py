"""Plans of the dashboard and metrics: each statement reads a bounded number of rows.

40,000 jobs and 15,000 schedules are more than any statement of a page may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import insert

from duly import Duly, cron
from duly.model.index_rows import trigger_text
from duly.model.jobs import JobState
from duly.model.schedules import Definition
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import AuditEntry
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.rows.index_rows import insert as insert_rows
from duly.stores.sql.store import SqlStore
from duly.web.dashboard.site import PAGES, dashboard_app
from duly.web.operators.auth import AuthOptions, OperatorAuth
from tests.plans.explained import BACKENDS, Plans, Verb, examined, filled, plans_of, scans
from tests.plans.test_job_plans import FUTURE_MS, PAIRS, fill
from tests.rows import rows

ROWS = 15_000
COUNT_MAX = 200
LOOK = 500
PAGE_ROWS_MAX = 10_001
"""Rows that one statement of a page may read, plus one to know whether there are more."""
SMALL = (
    "duly_queues",
    "duly_workers",
    "duly_locks",
    "duly_schema",
    "duly_audit",
    "duly_ledger_counts",
)
EMPTY = ("duly_occurrences", "duly_schedule_events", "duly_job_events")
"""Tables that may be scanned: small, empty here, or (in SQLite) read from the end."""
DAILY = cron("0 12 * * *", tz="Europe/Berlin")
HOUR_MS = 3_600_000
HOST = "http://127.0.0.1"


async def fill_more(store: SqlStore) -> None:
    """Store jobs, schedules with their index rows, and audit entries."""
    await fill(store)

    def write(db: Db) -> None:
        wanted = list(rows(ROWS, trigger_text(DAILY), db.now_ms() + HOUR_MS))
        insert_rows(db, wanted)
        body = Definition(DAILY, "send").to_json()
        times = {"created_at_ms": 1, "updated_at_ms": 1}
        documents = [
            {"collection": "schedules", "scope": row.scope, "name": f"{row.flow}/{row.name}"}
            | {"id": row.schedule_id, "version": 1, "state": "active", "body": body}
            | times
            for row in wanted
        ]
        db.connection.execute(insert(db.tables.resources), documents)
        entries: list[dict[str, Any]] = [
            {"at_ms": 1, "actor": "ada", "action": "job.retry", "target": f"job:{number}"}
            | {"outcome": "done", "detail": ""}
            for number in range(2_000)
        ]
        db.connection.execute(insert(db.tables.audit), entries)

    await store._run(write)
    await store.append_audit(AuditEntry("ada", "job.retry", "job:7"))


@pytest.fixture(scope="module", params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from filled(request, tmp_path_factory, fill_more)


def search(**fields: Any) -> Verb:
    return lambda store: store.search_jobs(JobFilter(**fields), limit=20, look=LOOK)


READS: dict[str, tuple[Verb, int]] = {
    "states": (lambda store: store.count_states(COUNT_MAX), COUNT_MAX),
    "queues": (lambda store: store.count_queues(COUNT_MAX), 3 * COUNT_MAX),
    "workspaces": (lambda store: store.count_workspaces("default", 50), 50 * PAIRS),
    "backlog": (lambda store: store.count_backlog(COUNT_MAX), 40_000),
    "ledger": (lambda store: store.count_occurrences(), COUNT_MAX),
    "misses": (lambda store: store.find_missing(), COUNT_MAX),
    "line": (lambda store: store.count_line(COUNT_MAX), 2 * COUNT_MAX),
    "ends": (lambda store: store.count_ends(0, COUNT_MAX), 3 * COUNT_MAX),
    "due_summary": (lambda store: store.due_summary(COUNT_MAX), COUNT_MAX),
    "upcoming": (lambda store: store.upcoming(FUTURE_MS, COUNT_MAX, LOOK), LOOK + 1),
    "planned runs": (lambda store: store.next_planned(8, COUNT_MAX), COUNT_MAX),
    "check of the index": (lambda store: store.check_index(limit=COUNT_MAX), COUNT_MAX),
    "audit": (lambda store: store.list_audit(limit=10), 10),
    "audit of one": (lambda store: store.list_audit(target="job:7"), 2),
    **{f"{state} jobs": (search(state=state), LOOK + 1) for state in JobState},
    "jobs of a queue": (search(queue="nobody"), LOOK + 1),
    "jobs of a workspace": (search(workspace="nobody"), LOOK + 1),
    "jobs of an action in a state": (search(action="a.b", state=JobState.QUEUED), LOOK + 1),
    "jobs of a schedule": (search(schedule_id="sch_1", state=JobState.DEAD), LOOK + 1),
    "jobs of a correlation id": (search(correlation_id="c"), 20),
}


@pytest.mark.parametrize("name", READS)
def test_pages_examine_a_bounded_number_of_rows(url: str, name: str) -> None:
    verb, most = READS[name]
    plans = plans_of(url, verb)
    assert plans
    for plan in plans:
        assert scans(plan, *SMALL, *EMPTY) == [], plan
        assert examined(plan) <= most, plan


QUERIES = {
    "/job": ("?id=job_000000007",),
    "/schedule": ("?flow=bulk&scope=user:7&name=sch",),
    "/schedules/edit": ("?flow=bulk&scope=user:7&name=sch",),
    "/schedules": ("", "?state=paused", "?name=nobody", "?scope=user:7"),
    "/jobs": ("", "?queue=nobody", "?action=a.b", *(f"?state={each}" for each in JobState)),
    "/jobs/confirm": ("?do=retry&state=dead", "?do=delete&state=dead&queue=nobody"),
    "/queue": ("?name=default",),
}


def test_no_page_scans_a_table(url: str) -> None:
    """Every page of the dashboard, with each filter that it has."""
    asked = [path + query for path in PAGES for query in QUERIES.get(path, ("",))]

    async def look() -> list[str]:
        app = Duly(url)
        auth = OperatorAuth(AuthOptions(development_host="127.0.0.1"))
        transport = httpx.ASGITransport(dashboard_app(app, auth), client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            await client.get("/healthz")
            plans = Plans(cast(SqlStore, app.store)._engine)
            for path in (*asked, "/metrics", "/readyz"):
                plans.found.append(f"-- {path}")
                assert (await client.get(path)).status_code == 200, path
            await app.admin.monitoring.forecast()
            await app.admin.health(index=await app.admin.monitoring.index_health())
        await app.store.close()
        return plans.found

    for plan in asyncio.run(look()):
        assert scans(plan, *SMALL, *EMPTY) == [], plan
        assert examined(plan) <= PAGE_ROWS_MAX, plan


def test_counts_are_right_where_they_are_small(url: str) -> None:
    async def check() -> None:
        store = open_store(url)
        counts = await store.count_states()
        assert counts[JobState.PROCESSING] == 500
        assert counts[JobState.SUCCEEDED] == 4_000
        assert counts[JobState.QUEUED] == 10_000
        backlog = await store.count_backlog()
        assert backlog.is_estimate
        assert backlog.jobs > 15_000
        await store.close()

    asyncio.run(check())
