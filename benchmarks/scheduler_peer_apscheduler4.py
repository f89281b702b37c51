"""APScheduler 4 alpha (`URL ENTRIES`): due schedules in its SQLAlchemy data store.

It runs in the scheduler role only: it makes jobs and runs none. One schedule is added; the others
are copies of its row.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from apscheduler import AsyncScheduler, SchedulerRole
from apscheduler.datastores.sqlalchemy import (
    SQLAlchemyDataStore,
)
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.scheduler_peer_clock import fire_in_time


def nothing() -> None:
    """Do nothing."""


async def run(url: str, entries: int) -> None:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    scheduler: Any = AsyncScheduler(SQLAlchemyDataStore(engine), role=SchedulerRole.scheduler)
    async with scheduler:
        started_at = datetime.now(UTC) - timedelta(seconds=1)
        trigger: Any = IntervalTrigger(hours=1, start_time=started_at)
        await scheduler.add_schedule(nothing, trigger, id="0")
        with psycopg.connect(url, autocommit=True) as connection:
            _copy(connection, entries)
            fire_in_time(entries, lambda: _jobs(connection))
            await scheduler.run_until_stopped()


def _copy(connection: psycopg.Connection[Any], entries: int) -> None:
    found = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'schedules' "
        "AND column_name <> 'id'"
    )
    names = ", ".join(f'"{row[0]}"' for row in found)
    connection.execute(
        f"INSERT INTO schedules (id, {names}) SELECT i::text, {names} "
        f"FROM schedules, generate_series(1, {entries - 1}) AS i"
    )
    connection.execute("ANALYZE schedules")


def _jobs(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM jobs").fetchone()
    return 0 if row is None else int(row[0])


def main(url: str, entries: str) -> None:
    logging.disable()
    asyncio.run(run(url, int(entries)))


if __name__ == "__main__":
    main(*sys.argv[1:])
