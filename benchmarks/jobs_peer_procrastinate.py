"""procrastinate's no-op jobs: `enqueue URL JOBS`, or `work URL JOBS OPTIONS`, in its environment.

Finished jobs stay in its table, with an event for each change of state.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

from benchmarks.jobs_peer_calls import Calls, end_with_parent


def new_app(url: str, jobs: int, connections: int) -> Any:
    calls = Calls(jobs)
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=connections))

    async def noop() -> None:
        calls.note()

    app.task(name="noop")(noop)
    return app


async def enqueue(url: str, jobs: int) -> None:
    app = new_app(url, jobs, 4)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await app.tasks["noop"].batch_defer_async(*[{} for _ in range(jobs)])


async def work(url: str, jobs: int, options: dict[str, Any]) -> None:
    app = new_app(url, jobs, options.pop("connections"))
    async with app.open_async():
        await app.run_worker_async(**options)


def main(verb: str, url: str, jobs: str, options: str = "{}") -> None:
    logging.disable()
    if verb == "enqueue":
        asyncio.run(enqueue(url, int(jobs)))
    else:
        end_with_parent()
        asyncio.run(work(url, int(jobs), json.loads(options)))


if __name__ == "__main__":
    main(*sys.argv[1:])
