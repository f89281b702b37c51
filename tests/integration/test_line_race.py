"""A claim locks a job's line entry while another transaction holds the row of the job."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from duly.model.claims import ClaimRequest, Claims
from duly.model.jobs import JobId, JobState, NewJob, WorkerId
from duly.stores import open_store

JOB = JobId("job_1")
WAIT_LIMIT_S = 30.0
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"


async def insert(url: str) -> None:
    store = open_store(url)
    await store.insert_jobs([NewJob(id=JOB, action="a.b")])
    await store.close()


def claim(url: str) -> Claims:
    async def claimed() -> Claims:
        store = open_store(url)
        try:
            return await store.claim_jobs(ClaimRequest(worker=WorkerId("worker_1")))
        finally:
            await store.close()

    return asyncio.run(claimed())


def until_it_waits(connection: psycopg.Connection, claims: "Future[Claims]") -> None:
    with psycopg.connect(connection.info.dsn, password=connection.info.password) as other:
        other.autocommit = True
        while not claims.done():
            found = other.execute(WAITS, [connection.info.dbname]).fetchone()
            if found and found[0]:
                return


@pytest.mark.timeout(WAIT_LIMIT_S * 2)
@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.QUEUED])
def test_a_claim_takes_a_job_only_if_still_queued(postgres_url: str, state: JobState) -> None:
    """The row is locked, a claim takes the line entry and waits, then the row is updated."""
    asyncio.run(insert(postgres_url))
    with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT id FROM duly_jobs WHERE id = %s FOR UPDATE", [JOB])
        claims = threads.submit(claim, postgres_url)
        until_it_waits(holder, claims)
        assert not claims.done()
        holder.execute("UPDATE duly_jobs SET state = %s WHERE id = %s", [state.value, JOB])
        holder.commit()
        taken = [job.id for job in claims.result(WAIT_LIMIT_S).jobs]
    assert taken == ([JOB] if state is JobState.QUEUED else [])
