"""Plans of hand-over by HTTP: a tick and the endpoint find their rows by an index."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from duly import cron
from duly.model.dispatches import DispatchAnswer, DispatchClaim, Fire
from duly.model.index_rows import trigger_text
from duly.model.jobs import JobId, NewJob
from duly.stores import open_store
from duly.stores.sql.bulk import insert_all
from duly.stores.sql.db import Db
from duly.stores.sql.rows.index_rows import insert as insert_rows
from duly.stores.sql.store import SqlStore
from duly.testing import ManualClock
from duly.triggers.instants import from_ms
from tests.plans.test_due_plan import Recorder
from tests.rows import LATER_MS, NOON_MS, rows

pytestmark = pytest.mark.extended

DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
ENDED = 10_000
HELD = 500
LAPSED = 10
HOUR_MS = 3_600_000


def a_row(number: int, state: str, **columns: Any) -> dict[str, Any]:
    """Return a ledger row of one of a thousand schedules."""
    return {
        "schedule_id": f"sch_{number % 1_000:08}",
        "nominal_ms": NOON_MS - number * 60_000,
        "flow": "bulk",
        "scope": "system",
        "name": "sch",
        "run_at_ms": NOON_MS - number * 60_000,
        "state": state,
        "missed": 0,
        "row_version": 0,
        "position": 0,
        "at_ms": NOON_MS,
        "times": 1,
        **columns,
    }


def ledger_rows() -> Iterator[dict[str, Any]]:
    """Yield history, dispatches that other ticks hold, and a few whose lease has expired."""
    post = {"tries": 1, "delivery": "at_least_once"}
    unclaimed = {"tries": None, "delivery": None, "lease_until_ms": None, "claim_id": None}
    for number in range(1, ENDED):
        yield a_row(number, "succeeded", **unclaimed)
    for number in range(ENDED, ENDED + HELD):
        lease = {"lease_until_ms": NOON_MS + HOUR_MS, "claim_id": f"tick:{number // 10}"}
        yield a_row(number, "dispatching", **post, **lease)
    for number in range(ENDED + HELD, ENDED + HELD + LAPSED):
        lease = {"lease_until_ms": NOON_MS, "claim_id": "tick:dead"}
        yield a_row(number, "dispatching", **post, **lease)


def fill(db: Db) -> None:
    due = [*rows(LAPSED, DAILY), *rows(10_000, DAILY, LATER_MS, "wait")]
    insert_rows(db, due)
    db.run("UPDATE {p}schedule_index SET hand_over = 'http'")
    db.run("UPDATE {p}schedule_rules SET hand_over = 'http'")
    insert_all(db, db.tables.occurrences, list(ledger_rows()))


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/x.db" if is_file else request.getfixturevalue("postgres_url")
    opened = cast(SqlStore, open_store(url, clock=ManualClock(from_ms(NOON_MS))))
    asyncio.run(opened._run(fill))
    with opened._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    yield opened
    asyncio.run(opened.close())


def plan_of(store: SqlStore, statement: str, parameters: Any) -> str:
    asked = "EXPLAIN QUERY PLAN" if store._dialect.name == "sqlite" else "EXPLAIN"
    with store._engine.begin() as connection:
        found = connection.exec_driver_sql(f"{asked} {statement}", parameters)
        return "\n".join(str(row) for row in found)


def plans_of(store: SqlStore, recorder: Recorder) -> dict[str, str]:
    """Return the plans of all statements that read Duly's tables, by statement."""
    return {
        statement: plan_of(store, statement, parameters)
        for statement, parameters in list(recorder.statements)
        if "duly_" in statement and not isinstance(parameters, list)
    }


def assert_no_scans(plans: dict[str, str]) -> None:
    """Assert that no plan scans one of the filled tables. Empty ones are scanned by any plan."""
    tables = r"(duly_occurrences|duly_schedule_index|duly_schedule_rules|o)\b"
    for statement, plan in plans.items():
        assert not re.search(f"(Seq Scan on|SCAN) {tables}", plan), f"{statement}\n{plan}"


def test_claim_finds_expired_dispatches_by_lease(store: SqlStore) -> None:
    recorder = Recorder(store._engine)
    given = asyncio.run(store.claim_dispatches(DispatchClaim("one", limit=2 * LAPSED)))
    assert len(given) == 2 * LAPSED
    plans = plans_of(store, recorder)
    assert_no_scans(plans)
    lapsed = next(plan for each, plan in plans.items() if "lease_until_ms <=" in each)
    assert "duly_occurrences_dispatching" in lapsed, lapsed
    due = next(plan for each, plan in plans.items() if "i.runs_left" in each)
    assert "duly_schedule_index_due" in due, due


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_claim_examines_only_expired_dispatches(store: SqlStore) -> None:
    recorder = Recorder(store._engine)
    asyncio.run(store.claim_dispatches(DispatchClaim("one", limit=1)))
    statement, parameters = next(e for e in recorder.statements if "lease_until_ms <=" in e[0])
    with store._engine.begin() as connection:
        explained = connection.exec_driver_sql(f"EXPLAIN ANALYZE {statement}", parameters)
        plan = "\n".join(row[0] for row in explained)
    actual = [int(float(found)) for found in re.findall(r"actual time=\S+ rows=(\d+)", plan)]
    assert max(actual) == LAPSED - 1, plan  # the claim above took one


def test_answers_are_found_by_their_claim(store: SqlStore) -> None:
    given = asyncio.run(store.claim_dispatches(DispatchClaim("one")))
    answers = [DispatchAnswer(each.schedule_id, each.nominal_ms, "not_found") for each in given]
    recorder = Recorder(store._engine)
    assert asyncio.run(store.end_dispatches("one", answers)) == len(given)
    assert_no_scans(plans_of(store, recorder))


def test_fire_finds_its_occurrence_by_time(store: SqlStore) -> None:
    (given, *_) = asyncio.run(store.claim_dispatches(DispatchClaim("one")))
    job = NewJob(
        id=JobId("j1"),
        action="bulk.send",
        schedule_id=given.schedule_id,
        nominal_ms=given.nominal_ms,
        turn="asks",
        policies="{}",
        key="k",
    )
    recorder = Recorder(store._engine)
    asyncio.run(store.fire(Fire(job, "bulk", "system", "sch")))
    assert_no_scans(plans_of(store, recorder))
