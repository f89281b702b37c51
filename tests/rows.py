"""Create index rows in bulk, for tests that need many."""

from collections.abc import Iterator
from typing import cast

from duly.model.index_rows import IndexRow
from duly.model.schedules import ScheduleId
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.rows.index_rows import insert
from duly.stores.sql.store import SqlStore

NOON_MS = 1_773_572_400_000
"""2026-03-15 12:00 in Berlin."""
LATER_MS = NOON_MS + 30 * 86_400_000


def rows(
    count: int, trigger: str, nominal_ms: int = NOON_MS, prefix: str = "sch"
) -> Iterator[IndexRow]:
    """Yield `count` rows, each of another user, all due at the same instant."""
    for i in range(count):
        yield IndexRow(
            schedule_id=ScheduleId(f"{prefix}_{i:08}"),
            flow="bulk",
            scope=f"user:{i}",
            name=prefix,
            trigger=trigger,
            nominal_ms=nominal_ms,
            run_at_ms=nominal_ms,
            zone="Europe/Berlin",
            hand_over="jobs",
        )


async def fill(url: str, due: int, trigger: str, waiting: int = 0) -> None:
    """Store `due` rows that are due at noon, and `waiting` rows that are due a month later."""
    store = cast(SqlStore, open_store(url))
    wanted = [*rows(due, trigger), *rows(waiting, trigger, LATER_MS, "wait")]

    def write(db: Db) -> None:
        for start in range(0, len(wanted), 10_000):
            insert(db, wanted[start : start + 10_000])

    await store._run(write)
    await store.close()
