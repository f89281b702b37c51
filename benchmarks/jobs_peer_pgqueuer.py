"""pgqueuer's no-op jobs: `enqueue URL JOBS`, or `work URL JOBS OPTIONS`, in its own environment.

Finished jobs leave its queue and stay in its log, written in the same statement.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import uvloop  # type: ignore[import-not-found]
from pgqueuer import PgQueuer, Queries  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]

from benchmarks.jobs_peer_calls import Calls, end_with_parent

CHUNK = 10_000


async def enqueue(url: str, jobs: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for first in range(0, jobs, CHUNK):
        size = min(CHUNK, jobs - first)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    await connection.close()


async def work(url: str, jobs: int, options: dict[str, Any]) -> None:
    calls = Calls(jobs)
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    async def noop(_job: object) -> None:
        calls.note()

    worker.entrypoint("noop")(noop)
    await worker.run(batch_size=options["batch"])


def main(verb: str, url: str, jobs: str, options: str = "{}") -> None:
    if verb == "enqueue":
        asyncio.run(enqueue(url, int(jobs)))
    else:
        end_with_parent()
        uvloop.run(work(url, int(jobs), json.loads(options)))


if __name__ == "__main__":
    main(*sys.argv[1:])
