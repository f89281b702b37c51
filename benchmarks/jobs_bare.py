"""The upper limit: psycopg running only the statements of a claim and of a completion.

`enqueue URL JOBS`, or `work URL JOBS OPTIONS`. It writes the same rows, history and indexes as
Duly's worker, without a buffer, handlers, renewed leases or notifications.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import psycopg

from benchmarks.jobs_ours import enqueue
from benchmarks.jobs_peer_calls import Calls, end_with_parent

NOW = "(SELECT (EXTRACT(epoch FROM statement_timestamp()) * 1000)::bigint)"
TAKE = f"""
WITH picked AS MATERIALIZED (
    SELECT ctid AS spot FROM duly_job_line WHERE queue = 'default' AND run_at_ms <= {NOW}
    ORDER BY place, id LIMIT %s FOR UPDATE SKIP LOCKED
), gone AS MATERIALIZED (
    DELETE FROM duly_job_line WHERE ctid = ANY(ARRAY(SELECT spot FROM picked)) RETURNING id
)
UPDATE duly_jobs SET state = 'processing', fence = fence + 1, events = events + 1,
    worker = 'bare', claimed_at_ms = {NOW}, lease_until_ms = {NOW} + 30000
WHERE id = ANY(ARRAY(SELECT id FROM gone)) AND state = 'queued'
RETURNING id, fence, input, lease_until_ms
"""
MARK = "INSERT INTO duly_job_marks (state, at_ms, jobs, ids) VALUES ('processing', %s, %s, %s)"
END = f"""
WITH f AS MATERIALIZED (
    SELECT * FROM unnest(%s::text[], %s::integer[]) AS f (id, fence)
), ended AS (
    UPDATE duly_jobs AS j SET state = 'succeeded', events = events + 1, attempts = attempts + 1,
        lease_until_ms = NULL, finished_at_ms = {NOW}
    FROM f
    WHERE j.id = ANY(ARRAY(SELECT id FROM f)) AND j.id = f.id AND j.fence = f.fence
        AND j.state = 'processing'
    RETURNING j.id
)
INSERT INTO duly_job_marks (state, at_ms, jobs, ids)
SELECT 'succeeded', {NOW}, count(*), json_agg(id) FROM ended HAVING count(*) > 0
"""


def work(url: str, jobs: int, options: dict[str, Any]) -> None:
    calls = Calls(jobs)
    with psycopg.connect(url, prepare_threshold=None) as connection:
        while True:
            with connection.transaction():
                rows = connection.execute(TAKE, [options["batch"]]).fetchall()
                ids, fences = [row[0] for row in rows], [row[1] for row in rows]
                if rows:
                    connection.execute(MARK, [rows[0][3], len(ids), json.dumps(ids)])
            for _ in rows:
                calls.note()
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
