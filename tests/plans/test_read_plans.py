"""Plans of page reads: the cost depends on the page size, not on the rows stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import insert

from duly import cron
from duly.model.claims import ClaimRequest
from duly.model.index_rows import trigger_text
from duly.model.jobs import JobId, NewJob, WorkerId
from duly.model.ledger import OccurrenceState
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Definition, ScheduleId
from duly.rules.ledger_misses import ROWS_LOOK
from duly.rules.outcomes import Succeeded, decide
from duly.stores.sql.db import Db
from duly.stores.sql.reads import ledger_counts
from duly.stores.sql.rows.index_rows import insert as insert_rows
from duly.stores.sql.store import SqlStore
from tests.plans.explained import BACKENDS, Verb, examined, filled, plans_of, scans
from tests.rows import rows

STORED = 50_000
JOBS = 10_000
RARE = 20
LONG = ScheduleId("sch_long")
MINUTE_MS = 60_000
FIRST_MS = 1_770_000_000_000
LAST_MS = FIRST_MS + STORED * MINUTE_MS
PAGE = 50
MIDDLE = ScheduleKey("bulk", "user:25000", "digest-5")
DAILY = cron("0 12 * * *", tz="Europe/Berlin")
TRIGGER = trigger_text(DAILY)
BODY = Definition(DAILY, "send").to_json()


def _documents() -> Iterator[dict[str, object]]:
    """Yield one schedule per user, some rare or quarantined, and one scope with many."""
    for number in range(STORED):
        scope = f"user:{number:05}" if number % 50 else "workspace:acme"
        flow = "rare" if number % (STORED // RARE) == 1 else "bulk"
        is_bad = number % (STORED // RARE) == 2
        yield {
            "collection": "schedules",
            "scope": scope,
            "name": f"{flow}/digest-{number % 10}-{number}",
            "id": f"sch_{number:06}",
            "version": 1,
            "state": "quarantined" if is_bad else "active",
            "error": None,
            "body": BODY,
            "created_at_ms": 1_773_572_400_000,
            "updated_at_ms": 1_773_572_400_000,
            "hand_over": "external" if is_bad else None,
        }


def _occurrences() -> Iterator[dict[str, object]]:
    """Yield a ledger of which one schedule has half. Some of its rows cover two nominal times."""
    for number in range(STORED):
        is_long = number % 2 == 0
        nominal_ms = FIRST_MS + number * MINUTE_MS
        has_job = number >= STORED - JOBS
        yield {
            "schedule_id": LONG if is_long else f"sch_{number % 5_000:05}",
            "nominal_ms": nominal_ms,
            "flow": "bulk",
            "scope": "user:ada",
            "name": "a",
            "run_at_ms": nominal_ms,
            "state": "succeeded" if number % 1_000 else "missed",
            "missed": 0,
            "row_version": 0,
            "position": 0,
            "at_ms": nominal_ms,
            "until_ms": nominal_ms + (0 if number % 500 else MINUTE_MS),
            "times": 1,
            "job_id": f"job_{STORED - number:09}" if has_job else None,
            "fired_at_ms": nominal_ms + 5,
        }


async def _add_jobs(store: SqlStore) -> None:
    """Store succeeded jobs, which the occurrences refer to."""
    for start in range(0, JOBS, 1_000):
        ids = range(start + 1, start + 1_001)
        await store.insert_jobs([NewJob(id=JobId(f"job_{n:09}"), action="a.b") for n in ids])
        claims = await store.claim_jobs(ClaimRequest(worker=WorkerId("w"), limit=1_000))
        await store.finish([decide(job, Succeeded()) for job in claims.jobs])


async def fill(store: SqlStore) -> None:
    await _add_jobs(store)

    def write(db: Db) -> None:
        db.connection.execute(insert(db.tables.occurrences), list(_occurrences()))
        db.connection.execute(insert(db.tables.resources), list(_documents()))
        insert_rows(db, list(rows(STORED // 10, TRIGGER)))

    await store._run(write)


@pytest.fixture(scope="module", params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from filled(request, tmp_path_factory, fill)


def search(**fields: Any) -> Verb:
    async def verb(store: SqlStore) -> None:
        for after in (None, MIDDLE):
            await store.search_schedules(ScheduleFilter(**fields), after=after, limit=PAGE)

    return verb


VERBS: dict[str, tuple[Verb, int]] = {
    "all": (search(), PAGE),
    "a flow": (search(flow="rare"), PAGE),
    "a state": (search(state="quarantined"), PAGE),
    "a state of a flow": (search(state="quarantined", flow="rare"), PAGE),
    "a hand-over": (search(hand_over="external"), PAGE),
    "a hand-over of a flow": (search(hand_over="external", flow="rare"), PAGE),
    "the usual hand-over": (search(hand_over="jobs"), PAGE + RARE),
    "a name in a flow": (search(flow="bulk", name_prefix="digest-5"), PAGE),
    "a name": (search(name_prefix="digest-5"), PAGE),
    "a name nobody has": (search(name_prefix="zzz"), PAGE),
    "a scope": (search(scope="workspace:acme"), PAGE),
    "a scope, a flow and a name": (
        search(scope="workspace:acme", flow="bulk", name_prefix="digest-5"),
        PAGE,
    ),
    # Within one scope, a search by state reads all schedules of the scope.
    "a state in a scope": (search(scope="workspace:acme", state="quarantined"), 1_000),
    "a page of the ledger": (lambda store: store.list_occurrences(LONG, limit=PAGE), PAGE),
    "the last of a window": (
        lambda store: store.list_occurrences(
            LONG, since_ms=FIRST_MS, before_ms=LAST_MS // 2 + FIRST_MS // 2, limit=PAGE
        ),
        PAGE,
    ),
    "a state in a window": (
        lambda store: store.list_occurrences(
            LONG, since_ms=LAST_MS - 1_000 * MINUTE_MS, states=[OccurrenceState.PLANNED]
        ),
        500,
    ),
    "a time": (lambda store: store.occurrence_at(LONG, FIRST_MS + 100 * MINUTE_MS), 1),
    # Without a match, all rows of the schedule that cover several times are read, but no others.
    "no time": (lambda store: store.occurrence_at(LONG, LAST_MS), 100),
    "a summary": (
        lambda store: store.ledger_summary(LONG, LAST_MS - 200 * MINUTE_MS, LAST_MS),
        100,
    ),
    "lateness": (lambda store: store.recent_lateness(PAGE), 2 * PAGE),
    "of jobs": (lambda store: store.occurrences_of_jobs([JobId(f"job_{STORED:09}")]), 1),
    "rows by id": (lambda store: store.find_rows([ScheduleId("sch_00000001")]), 1),
}


@pytest.mark.parametrize("name", VERBS)
def test_reads_examine_what_they_show(url: str, name: str) -> None:
    verb, most = VERBS[name]
    plans = plans_of(url, verb)
    assert plans
    for plan in plans:
        assert scans(plan) == [], plan
        assert "TEMP B-TREE FOR ORDER" not in plan, plan
        assert examined(plan) <= most, plan


def test_misses_are_found_by_their_index(url: str) -> None:
    """Only rows missed or skipped lately are read, then the newest rows of one schedule."""

    async def look(store: SqlStore) -> None:
        await store.find_missing()
        await store._run(ledger_counts._missing, LONG)

    candidates, of_one = plans_of(url, look)
    assert "duly_occurrences_lost" in candidates, candidates
    for plan in (candidates, of_one):
        assert scans(plan) == [], plan
        assert examined(plan) <= ROWS_LOOK, plan
