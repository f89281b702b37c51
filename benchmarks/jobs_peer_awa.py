"""awa-pg's no-op jobs: `enqueue URL JOBS`, or `work URL JOBS OPTIONS`, in its own environment.

Finished jobs are pruned within seconds, when its storage rotates; their count stays.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient  # type: ignore[import-not-found]

from benchmarks.jobs_peer_calls import Calls, end_with_parent

CHUNK = 10_000
QUEUE = "noop"


@dataclass
class Noop:
    """A job without arguments."""


async def enqueue(url: str, jobs: int) -> None:
    client = AsyncClient(url)
    await client.migrate()
    await client.install_queue_storage()
    for first in range(0, jobs, CHUNK):
        await client.enqueue_many_copy([Noop()] * min(CHUNK, jobs - first), queue=QUEUE)
    await client.close()


async def work(url: str, jobs: int, options: dict[str, Any]) -> None:
    calls = Calls(jobs)
    client = AsyncClient(url, max_connections=options.pop("connections"))

    async def noop(_job: object) -> None:
        calls.note()

    client.task(Noop, queue=QUEUE)(noop)
    await client.start([{"name": QUEUE, **options}])
    await asyncio.Event().wait()


def main(verb: str, url: str, jobs: str, options: str = "{}") -> None:
    if verb == "enqueue":
        asyncio.run(enqueue(url, int(jobs)))
    else:
        end_with_parent()
        asyncio.run(work(url, int(jobs), json.loads(options)))


if __name__ == "__main__":
    main(*sys.argv[1:])
