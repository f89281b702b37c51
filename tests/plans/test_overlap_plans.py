"""Plans of overlap: with 10,000 jobs in line, a completion reads only the next job."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from msgspec import structs

from duly import cron
from duly.model.claims import ClaimRequest
from duly.model.jobs import WorkerId
from duly.model.plans import MAX_PLAN, Backfill
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.rules.outcomes import Succeeded, decide
from duly.stores.sql.store import SqlStore
from tests.plans.explained import BACKENDS, examined, filled, plans_of, scans

IN_LINE = 10_000
SCHEDULE = ScheduleId("sch_1")
JOBS = "duly_jobs"
SMALL = ("duly_queues", "duly_queue_tokens", "duly_job_line", "duly_running")
"""Tables that stay small, because one job at a time may run."""


async def fill(store: SqlStore) -> None:
    key, rule = ScheduleKey("mail", "user:a", "a"), Definition(cron("* * * * *"), "send")
    await store.put_schedules([ScheduleWrite(key, SCHEDULE, rule)])
    start_ms = time.time_ns() // 1_000_000 - (IN_LINE + 1) * 60_000
    end_ms = start_ms + IN_LINE * 60_000
    from_ms: int | None = start_ms
    while from_ms is not None:
        report = await store.backfill(Backfill(SCHEDULE, from_ms, end_ms, MAX_PLAN))
        assert report is not None
        from_ms = report.next_from_ms
    # Pause the schedule: planning another occurrence would read the whole line.
    paused = structs.replace(rule, enabled=False)
    await store.put_schedules([ScheduleWrite(key, SCHEDULE, paused)])


@pytest.fixture(scope="module", params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from filled(request, tmp_path_factory, fill)


async def _claim_and_finish(store: SqlStore) -> None:
    claims = await store.claim_jobs(ClaimRequest(worker=WorkerId("worker_plan")))
    assert len(claims.jobs) == 1
    await store.finish([decide(job, Succeeded()) for job in claims.jobs])


def test_completion_examines_only_the_next_in_line(url: str) -> None:
    plans = plans_of(url, _claim_and_finish, JOBS)
    assert any("in_line = 1" in plan for plan in plans)
    for plan in plans:
        assert scans(plan, *SMALL) == [], plan
        assert examined(plan, JOBS) <= 5, plan
        assert "TEMP B-TREE" not in plan or "in_line = 1" not in plan, plan
