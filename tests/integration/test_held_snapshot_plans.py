"""Planning on PostgreSQL skips ranges that rows have left and finds every row that moved."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from benchmarks.blocks import Blocks

from duly import cron
from duly.engine.ids import Ids
from duly.engine.schedules import index as engine_index
from duly.model.index_rows import IndexRow, trigger_text
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.fast import index
from duly.stores.sql.gaps import ranges
from duly.stores.sql.source import transact
from duly.stores.sql.store import SqlStore
from tests.rows import NOON_MS, rows

HOURLY = trigger_text(cron("0 * * * *"))
HOUR_MS = 3_600_000
FLOW = "bulk"
TABLE = "duly_schedule_index"
LOOK_AHEAD_MS = 60_000
MOVES = 200

# Advance rows as planning does, without writing occurrences.
MOVE = """
    UPDATE duly_schedule_index SET run_at_ms = run_at_ms + 1000
    WHERE flow = 'bulk'
"""


class Planned:
    """A store with an index, and other writers to its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: SqlStore = open_store(url)  # type: ignore[assignment]

    def run(self, verb: Any) -> Any:
        return asyncio.run(verb)

    def put(self, *wanted: IndexRow) -> None:
        for row in wanted:
            self.run(self.store.upsert(row))

    def claim(self, now_ms: int, limit: int = 10) -> list[str]:
        claimed = self.run(self.store.claim_due(now_ms, limit, FLOW))
        return [each.schedule_id for each in claimed]

    @contextmanager
    def moving(self, row: IndexRow) -> Iterator[None]:
        """Hold open a transaction that stores a row, until the block ends."""
        with self.store._engine.begin() as connection:
            transact(self.store._db(connection), Ids(), engine_index.upsert, row)
            yield


@pytest.fixture
def planned(postgres_url: str) -> Iterator[Planned]:
    planned = Planned(postgres_url)
    yield planned
    asyncio.run(planned.store.close())


@pytest.fixture
def two(planned: Planned) -> tuple[IndexRow, IndexRow]:
    """Store two rows, one due at noon and one an hour later, and claim the first."""
    first, second = rows(2, HOURLY)
    second = replace(second, nominal_ms=NOON_MS + HOUR_MS, run_at_ms=NOON_MS + HOUR_MS)
    planned.put(first, second)
    assert planned.claim(NOON_MS) == ["sch_00000000"]
    assert planned.claim(NOON_MS) == []
    return first, second


def check_earlier_time(planned: Planned, second: IndexRow) -> None:
    """Check that a row set back to a time that searches have passed is claimed."""
    early = replace(second, trigger=trigger_text(cron("30 * * * *")), run_at_ms=NOON_MS - HOUR_MS)
    planned.put(replace(early, nominal_ms=NOON_MS - HOUR_MS))
    assert planned.claim(NOON_MS) == ["sch_00000001"]


def test_a_row_that_is_set_back_is_claimed(
    planned: Planned, two: tuple[IndexRow, IndexRow]
) -> None:
    check_earlier_time(planned, two[1])


@pytest.mark.planted("gaps")
def test_a_row_that_moves_without_a_new_entry_is_caught(
    planned: Planned, two: tuple[IndexRow, IndexRow]
) -> None:
    with psycopg.connect(planned.url) as connection:
        connection.execute("ALTER TABLE duly_schedule_index DISABLE TRIGGER USER")
    with pytest.raises(AssertionError):
        check_earlier_time(planned, two[1])


def test_a_row_of_an_open_transaction_is_claimed_after_its_commit(
    planned: Planned, two: tuple[IndexRow, IndexRow]
) -> None:
    early = replace(two[1], trigger=trigger_text(cron("30 * * * *")), run_at_ms=NOON_MS - HOUR_MS)
    with planned.moving(replace(early, nominal_ms=NOON_MS - HOUR_MS)):
        assert planned.claim(NOON_MS) == []
        assert planned.claim(NOON_MS) == []
    assert planned.claim(NOON_MS) == ["sch_00000001"]


def test_rows_of_a_claim_that_is_rolled_back_are_claimed_again(planned: Planned) -> None:
    planned.put(*rows(2, HOURLY))

    def fail_after_claim(db: Db) -> None:
        assert len(index.claim_due(db, NOON_MS, 10, FLOW)) == 2
        assert index.claim_due(db, NOON_MS, 10, FLOW) == []
        raise LookupError

    with pytest.raises(LookupError):
        planned.run(planned.store._run(fail_after_claim))
    assert planned.claim(NOON_MS) == ["sch_00000000", "sch_00000001"]


def test_a_row_that_advances_is_claimed_at_its_next_time(
    planned: Planned, two: tuple[IndexRow, IndexRow]
) -> None:
    assert planned.claim(NOON_MS + HOUR_MS) == [each.schedule_id for each in two]
    assert planned.claim(NOON_MS + HOUR_MS) == []
    assert planned.claim(NOON_MS + 2 * HOUR_MS) == [each.schedule_id for each in two]


def test_a_flow_without_rows_is_searched_and_found_later(planned: Planned) -> None:
    assert planned.claim(NOON_MS) == []
    assert planned.claim(NOON_MS) == []
    planned.put(*rows(1, HOURLY))
    assert planned.claim(NOON_MS) == ["sch_00000000"]


def plan(planned: Planned) -> Blocks:
    request = PlanRequest(look_ahead_ms=LOOK_AHEAD_MS, limit=20, flows=(FLOW,))
    blocks = Blocks(TABLE)
    with blocks.counting():
        planned.run(planned.store.plan_occurrences(request))
    return blocks


@pytest.mark.parametrize("is_analysed", [False, True])
def test_planning_skips_times_that_rows_have_left(planned: Planned, is_analysed: bool) -> None:
    writes = [
        ScheduleWrite(
            ScheduleKey(FLOW, f"user:{number}", "digest"),
            ScheduleId(f"sch_{number:03}"),
            Definition(cron("0 9 * * *"), "send"),
        )
        for number in range(100)
    ]
    planned.run(planned.store.put_schedules(writes))
    with ExitStack() as stack:
        reader, mover, *writers = (
            stack.enter_context(psycopg.connect(planned.url)) for _ in range(5)
        )
        for writer in writers:  # searches look for rows of running transactions
            writer.execute("SELECT pg_current_xact_id()")
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM duly_schedule_index")
        plan(planned)
        before = plan(planned)
        mover.autocommit = True
        for _ in range(MOVES):
            mover.execute(MOVE)
        if is_analysed:
            mover.execute("VACUUM ANALYZE duly_schedule_index")
        plan(planned)  # this walk is the only one
        after = [plan(planned) for _ in range(3)]
    assert max(each.blocks for each in after) <= 2 * before.blocks, [e.texts for e in after]
    assert [each.statements for each in after] == [before.statements] * 3


def test_gaps_of_a_flow_have_whole_times() -> None:
    """A gap ends before or after all rows of one time, never between them."""
    found = ranges.Found(ranges.Snapshot(5, ()), [], [ranges.Key(NOON_MS, "")])
    assert ranges.Gaps().after(found, is_stepping=False).first == NOON_MS
