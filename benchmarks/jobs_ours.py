"""Duly's no-op jobs: `enqueue URL JOBS`, or `work URL JOBS OPTIONS`, written as users would.

It keeps its full history: every transition of every job is stored as an event.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from benchmarks.jobs_peer_calls import Calls, end_with_parent
from duly import Duly, Flow, WorkerOptions


def make_app(url: str, calls: Calls | None = None) -> Duly:
    """Return an application with one action that does nothing."""
    flow = Flow("bench")

    @flow.action
    async def noop() -> None:
        if calls is not None:
            calls.note()

    return Duly(url if "://" in url else f"sqlite:///{url}", flows=[flow])


async def enqueue(url: str, jobs: int) -> None:
    async with make_app(url) as app:
        await app.client.enqueue_many("bench.noop", [None] * jobs)


async def work(url: str, jobs: int, options: dict[str, Any]) -> None:
    app = make_app(url, Calls(jobs))
    await app.serve(WorkerOptions(**options))


def main(verb: str, url: str, jobs: str, options: str = "{}") -> None:
    if verb == "enqueue":
        asyncio.run(enqueue(url, int(jobs)))
    else:
        end_with_parent()
        asyncio.run(work(url, int(jobs), json.loads(options)))


if __name__ == "__main__":
    main(*sys.argv[1:])
