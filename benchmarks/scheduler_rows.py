"""Schedules for benchmarks on PostgreSQL or SQLite, and ways to make them due again."""

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
# Typical rules in several zones, all due at nine.
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
DAYS = ("*", "MON-FRI", "MON", "1,3,5")
TRIGGERS = [cron(f"0 9 * * {days}", tz=zone) for zone in ZONES for days in DAYS]


class Lost(Exception):
    """Something did not fire or run, or did twice, so there are no valid figures."""


def now_ms() -> int:
    """Return the time of this machine's clock, which the databases use too."""
    return int(time() * 1000)


def definition(number: int) -> Definition:
    """Return the schedule definition of one of many users."""
    data = {"account": number, "template": "weekly-digest", "locale": "de", "limit": 20}
    return Definition(TRIGGERS[number % len(TRIGGERS)], "send", input=data)


def write(number: int, asked: Definition) -> ScheduleWrite:
    """Return a write of a schedule that belongs to user `number`."""
    key = ScheduleKey(FLOW, f"user:{number}", "digest")
    return ScheduleWrite(key, ScheduleId(new_id("sch_")), asked)


async def create(store: Store, count: int, first: int = 0) -> float:
    """Store schedules in bulk, numbered from `first` on; return schedules per second."""
    started = perf_counter()
    for start in range(first, first + count, CHUNK):
        numbers = range(start, min(start + CHUNK, first + count))
        await store.put_schedules([write(number, definition(number)) for number in numbers])
    return count / (perf_counter() - started)


def opened(url: str) -> Store:
    """Open a store whose writes plan nothing."""
    return open_store(url, planning=PlanSettings(look_ahead_ms=0), connections=2)


class Desk:
    """A second connection to a store's tables, for work between measurements."""

    def __init__(self, url: str) -> None:
        self.url = url
        driver = url.replace("postgresql:", "postgresql+psycopg:")
        self._engine = create_engine(driver, isolation_level="AUTOCOMMIT")
        self.is_postgresql = url.startswith("postgresql")

    def run(self, statement: str, **values: Any) -> Sequence[Any]:
        """Run one statement; return its rows."""
        with self._engine.connect() as connection:
            result = connection.execute(text(statement), values)
            return result.all() if result.returns_rows else []

    def reset(self, due_ms: int, count: int | None = None) -> None:
        """Delete what was planned and make rows due at an instant."""
        for table in EMPTIED:
            verb = "TRUNCATE" if self.is_postgresql else "DELETE FROM"
            self.run(f"{verb} duly_{table}")
        some = "" if count is None else f" WHERE row_id <= {count}"
        self.run(
            f"UPDATE duly_schedule_index SET nominal_ms = :ms, run_at_ms = :ms{some}", ms=due_ms
        )
        self.settle()

    def settle(self) -> None:
        """Vacuum, analyze and checkpoint, so that the next measurement does not pay for it."""
        if self.is_postgresql:
            self.run("VACUUM ANALYZE duly_schedule_index")
            self.run("VACUUM ANALYZE duly_resources")
            self.run("VACUUM ANALYZE duly_schedule_rules")
            self.run("CHECKPOINT")
        else:
            self.run("ANALYZE")

    def count(self, what: str) -> int:
        """Count rows of a table; `what` is its name, optionally followed by a condition."""
        return int(self.run(f"SELECT count(*) FROM duly_{what}")[0][0])

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()
