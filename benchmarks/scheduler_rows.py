"""Schedules to measure with, on PostgreSQL or SQLite, and ways to make them due again."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, time
from typing import Any

from sqlalchemy import create_engine, text

from duly import cron
from duly.engine.ids import new_id
from duly.model.plans import PlanSettings
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.stores import open_store
from duly.stores.port import Store

FLOW = "report"
CHUNK = 5_000
EMPTIED = ("occurrences", "jobs", "job_events", "job_line", "job_marks", "running")
# Rules that people write, in zones that they live in: all of them due at nine.
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
DAYS = ("*", "MON-FRI", "MON", "1,3,5")
TRIGGERS = [cron(f"0 9 * * {days}", tz=zone) for zone in ZONES for days in DAYS]


class Lost(Exception):
    """Something did not fire or run, or did twice: there are no figures to speak of."""


def now_ms() -> int:
    """This machine's clock, which the databases read too."""
    return int(time() * 1000)


def definition(number: int) -> Definition:
    """What one of many users asks for."""
    data = {"account": number, "template": "weekly-digest", "locale": "de", "limit": 20}
    return Definition(TRIGGERS[number % len(TRIGGERS)], "send", input=data)


def write(number: int, asked: Definition) -> ScheduleWrite:
    """A schedule of a user of its own."""
    key = ScheduleKey(FLOW, f"user:{number}", "digest")
    return ScheduleWrite(key, ScheduleId(new_id("sch_")), asked)


async def create(store: Store, count: int, first: int = 0) -> float:
    """Store schedules in bulk, numbered from `first` on; gives how many a second."""
    started = perf_counter()
    for start in range(first, first + count, CHUNK):
        numbers = range(start, min(start + CHUNK, first + count))
        await store.put_schedules([write(number, definition(number)) for number in numbers])
    return count / (perf_counter() - started)


def opened(url: str) -> Store:
    """A store that plans nothing by writing."""
    return open_store(url, planning=PlanSettings(look_ahead_ms=0), connections=2)


class Desk:
    """A second way to a store's tables, for what happens between measurements."""

    def __init__(self, url: str) -> None:
        self.url = url
        driver = url.replace("postgresql:", "postgresql+psycopg:")
        self._engine = create_engine(driver, isolation_level="AUTOCOMMIT")
        self.is_postgresql = url.startswith("postgresql")

    def run(self, statement: str, **values: Any) -> Sequence[Any]:
        """Run one statement; gives its rows."""
        with self._engine.connect() as connection:
            result = connection.execute(text(statement), values)
            return result.all() if result.returns_rows else []

    def reset(self, due_ms: int, count: int | None = None) -> None:
        """Forget what was planned, and let rows come due at an instant."""
        for table in EMPTIED:
            verb = "TRUNCATE" if self.is_postgresql else "DELETE FROM"
            self.run(f"{verb} duly_{table}")
        some = "" if count is None else f" WHERE row_id <= {count}"
        self.run(
            f"UPDATE duly_schedule_index SET nominal_ms = :ms, run_at_ms = :ms{some}", ms=due_ms
        )
        self.settle()

    def settle(self) -> None:
        """Leave nothing to be done that the next measurement would pay for."""
        if self.is_postgresql:
            self.run("VACUUM ANALYZE duly_schedule_index")
            self.run("VACUUM ANALYZE duly_resources")
            self.run("VACUUM ANALYZE duly_schedule_rules")
            self.run("CHECKPOINT")
        else:
            self.run("ANALYZE")

    def count(self, what: str) -> int:
        """Rows of a table, with a condition behind its name if need be."""
        return int(self.run(f"SELECT count(*) FROM duly_{what}")[0][0])

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()
