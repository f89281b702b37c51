"""Counts the blocks that a claim reads while a held snapshot keeps dead entries from removal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import psycopg
from tests.servers import PostgresServer

from benchmarks.blocks import Blocks
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, NewJob, WorkerId
from duly.stores import open_store
from duly.stores.port import Store

CHUNKS = 30
"""The process claims after each chunk, as workers do, instead of sleeping through all of them."""
CLAIM = ClaimRequest(worker=WorkerId("worker_snapshot"), limit=20)

# Line entries of jobs that were queued and claimed; a claim does not read the jobs themselves.
_ENTER = """
    INSERT INTO duly_job_line (queue, place, id, workspace, action, run_at_ms)
    SELECT 'default', %(from)s + i, 'passed_' || (%(from)s + i), '', 'bench.noop', 0
    FROM generate_series(1, %(many)s) AS i
"""
_LEAVE = "DELETE FROM duly_job_line WHERE action = 'bench.noop'"


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """Blocks read by one claim before and after other jobs were queued and claimed."""

    passed: int
    blocks_before: int
    blocks_after: int

    @property
    def ratio(self) -> float:
        """Return blocks read after / before."""
        return self.blocks_after / self.blocks_before

    def __str__(self) -> str:
        return (
            f"a claim reads {self.blocks_before} blocks, {self.blocks_after} after "
            f"{self.passed:,} jobs have passed"
        )


def measure_held_snapshot(server: PostgresServer, passed: int) -> HeldSnapshot:
    """Hold a snapshot, let jobs pass and count the blocks that a claim reads."""
    url = server.create()
    try:
        with psycopg.connect(url) as reader:
            store = open_store(url)
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SELECT count(*) FROM duly_jobs")
            return asyncio.run(_measure(store, url, passed))
    finally:
        server.drop(url)


async def _measure(store: Store, url: str, passed: int) -> HeldSnapshot:
    ids = [JobId(f"job_{number:06}") for number in range(CLAIM.limit * (CHUNKS + 3))]
    await store.insert_jobs([NewJob(id=each, action="bench.work") for each in ids])
    await store.claim_jobs(CLAIM)
    before = await _blocks(store)
    for chunk in range(CHUNKS):
        many = passed // CHUNKS
        with psycopg.connect(url) as connection:
            connection.execute(_ENTER, {"from": chunk * many, "many": many})
        with psycopg.connect(url) as connection:
            connection.execute(_LEAVE)
        await store.claim_jobs(CLAIM)
    after = await _blocks(store)
    await store.close()
    return HeldSnapshot(passed, before, after)


async def _blocks(store: Store) -> int:
    counted = Blocks()
    with counted.counting():
        await store.claim_jobs(CLAIM)
    return counted.blocks
