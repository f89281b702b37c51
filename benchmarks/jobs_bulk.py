"""Compares bulk enqueue with the bare driver: COPY of the same rows in batches of the same size."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import psycopg
from tests.servers import PostgresServer

from benchmarks.jobs_ours import make_app
from duly.engine.ids import new_ids
from duly.model.jobs import JobId, NewJob
from duly.model.stored_jobs import MAX_INSERT
from duly.stores.sql.fast.inserts import first_event, full_row
from duly.stores.sql.rows.line import COLUMNS


@dataclass(frozen=True, slots=True)
class Bulk:
    """Jobs stored per second, paired by round."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Return the median ratio of the rounds."""
        return median(ours / bare for ours, bare in zip(self.ours, self.bare, strict=True))


def measure_bulk(server: PostgresServer, jobs: int, rounds: int) -> Bulk:
    """Alternate the two, each run in a new database."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        for rates, measured in ((ours, _ours), (bare, _bare)):
            url = server.create()
            try:
                rates.append(jobs / measured(url, jobs))
            finally:
                server.drop(url)
    return Bulk(tuple(ours), tuple(bare))


def _ours(url: str, jobs: int) -> float:
    async def enqueue() -> float:
        async with make_app(url) as app:
            began = time.perf_counter()
            await app.client.enqueue_many("bench.noop", [None] * jobs)
            return time.perf_counter() - began

    return asyncio.run(enqueue())


def _bare(url: str, jobs: int) -> float:
    asyncio.run(make_app(url).__aenter__())
    batches = list(_batches(jobs))
    with psycopg.connect(url) as connection:
        began = time.perf_counter()
        for tables in batches:
            with connection.transaction(), connection.cursor() as cursor:
                for table, (names, rows) in tables.items():
                    with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                        for row in rows:
                            copy.write_row(row)
        return time.perf_counter() - began


Tables = dict[str, tuple[str, list[tuple[object, ...]]]]


def _batches(jobs: int) -> Iterator[Tables]:
    """Yield prepared rows, so that only writing is timed."""
    now_ms = int(time.time() * 1000)
    for start in range(0, jobs, MAX_INSERT):
        ids = new_ids("job_", min(MAX_INSERT, jobs - start))
        full = [full_row(NewJob(id=JobId(each), action="bench.noop"), now_ms) for each in ids]
        events = [first_event(row) for row in full]
        line = [{name: row[name] for name in COLUMNS.split(", ")} for row in full]
        yield {
            table: (", ".join(rows[0]), [tuple(row.values()) for row in rows])
            for table, rows in (
                ("duly_jobs", full),
                ("duly_job_events", events),
                ("duly_job_line", line),
            )
        }
