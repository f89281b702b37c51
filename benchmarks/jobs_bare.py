"""The limit: psycopg running the statements of a claim and of its end, and nothing else.

`enqueue URL JOBS`, or `work URL JOBS OPTIONS`. The same rows, indexes and events as Duly's own
worker writes, without buffer, handlers, leases to renew or anybody to tell.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import psycopg

from benchmarks.jobs_ours import enqueue
from benchmarks.jobs_peer_calls import Calls, end_with_parent

TAKE = """
WITH picked AS MATERIALIZED (
    SELECT id FROM duly_jobs WHERE state = 'queued' AND queue = 'default' AND careful = 0
        AND run_at_ms <= (EXTRACT(epoch FROM statement_timestamp()) * 1000)::bigint
    ORDER BY place, id LIMIT %s FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE duly_jobs SET state = 'processing', fence = fence + 1, events = events + 1,
        worker = 'bare', lease_until_ms =
            (EXTRACT(epoch FROM statement_timestamp()) * 1000)::bigint + 30000
    WHERE id = ANY(ARRAY(SELECT id FROM picked)) RETURNING id, fence, events, input
), told AS (
    INSERT INTO duly_job_events (job_id, seq, at_ms, state, attempt, actor)
    SELECT id, events, (EXTRACT(epoch FROM statement_timestamp()) * 1000)::bigint, 'processing',
        fence, 'bare' FROM taken
)
SELECT id, fence, input FROM taken
"""
END = """
WITH f AS MATERIALIZED (
    SELECT * FROM unnest(%s::text[], %s::integer[]) AS f (id, fence)
), ended AS (
    UPDATE duly_jobs AS j SET state = 'succeeded', events = events + 1, attempts = attempts + 1,
        worker = NULL, lease_until_ms = NULL,
        finished_at_ms = (EXTRACT(epoch FROM statement_timestamp()) * 1000)::bigint
    FROM f
    WHERE j.id = ANY(ARRAY(SELECT id FROM f)) AND j.id = f.id AND j.fence = f.fence
        AND j.state = 'processing'
    RETURNING j.id, j.fence, j.events
)
INSERT INTO duly_job_events (job_id, seq, at_ms, state, attempt)
SELECT id, events, (EXTRACT(epoch FROM statement_timestamp()) * 1000)::bigint, 'succeeded', fence
FROM ended
"""


def work(url: str, jobs: int, options: dict[str, Any]) -> None:
    calls = Calls(jobs)
    with psycopg.connect(url, prepare_threshold=None) as connection:
        while True:
            with connection.transaction():
                rows = connection.execute(TAKE, [options["batch"]]).fetchall()
            for _ in rows:
                calls.note()
            ids, fences = [row[0] for row in rows], [row[1] for row in rows]
            with connection.transaction():
                connection.execute(END, [ids, fences])


def main(verb: str, url: str, jobs: str, options: str = "{}") -> None:
    if verb == "enqueue":
        asyncio.run(enqueue(url, int(jobs)))
    else:
        end_with_parent()
        work(url, int(jobs), json.loads(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
