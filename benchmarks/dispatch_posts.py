"""Ways to post due occurrences: Duly's tick on PostgreSQL, and loops of httpx without a store.

The loops get their rows for free: they neither claim nor store answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter

import httpx

from duly.dispatch import TickOptions
from duly.dispatch.tick.posting import Post, post_of
from duly.dispatch.tick.tick import Tick, TickPlace
from duly.flows.collections import NewSchedule, ScheduleCollection
from duly.model.dispatches import Dispatching
from duly.model.schedules import Limits, ScheduleId
from duly.model.scopes import SYSTEM
from duly.stores import open_store
from duly.testing import ManualClock
from duly.triggers import once
from duly.triggers.instants import to_ms

SECRET = "a-secret-of-the-benchmark"  # noqa: S105 - of throwaway processes
FLOW = "bench"
CONCURRENCY = 50
MAX_CREATE = 1_000


class Short(Exception):
    """Some rows were not posted, so there is no figure."""


@dataclass(frozen=True, slots=True)
class Load:
    """The URL to post to and the number of posts."""

    url: str
    posts: int


async def tick(load: Load, database: str, name: str) -> float:
    """Return posts per second of a tick that claims, posts and stores every answer."""
    await _fill(database, load.posts, name)
    store = open_store(database)
    place = TickPlace(load.url, SECRET, (FLOW,))
    options = TickOptions(max_per_tick=load.posts, concurrency=CONCURRENCY)
    ticking = Tick(store, place, options)
    started = perf_counter()
    report = await ticking.run_once()
    took = perf_counter() - started
    await ticking.close()
    await store.close()
    if report.closed != load.posts:
        raise Short(f"the tick closed {report.closed} of {load.posts}: {report}")
    return load.posts / took


def loop(load: Load) -> float:
    """Return posts per second of a loop that posts sequentially over one connection."""
    posts = _posts(load)
    started = perf_counter()
    with httpx.Client() as client:
        for post in posts:
            client.post(post.url, content=post.body, headers=post.headers).raise_for_status()
    return load.posts / (perf_counter() - started)


async def many_at_once(load: Load) -> float:
    """Return posts per second with the same concurrency as the tick."""
    posts = iter(_posts(load))

    async def work(client: httpx.AsyncClient) -> None:
        for post in posts:
            answer = await client.post(post.url, content=post.body, headers=post.headers)
            answer.raise_for_status()

    started = perf_counter()
    async with httpx.AsyncClient() as client:
        await asyncio.gather(*(work(client) for _ in range(CONCURRENCY)))
    return load.posts / (perf_counter() - started)


def _posts(load: Load) -> Sequence[Post]:
    at_ms = to_ms(datetime.now(UTC))
    return [
        post_of(
            Dispatching(
                ScheduleId(f"s{n}"), FLOW, "system", f"s{n}", at_ms, at_ms, 1, "at_least_once", 0
            ),
            load.url,
            SECRET,
            0,
        )
        for n in range(load.posts)
    ]


async def _fill(database: str, posts: int, name: str) -> None:
    now = datetime.now(UTC)
    # Created with a clock one minute behind; otherwise they would have no next time.
    store = open_store(database, clock=ManualClock(now - timedelta(minutes=1)))
    mine = ScheduleCollection(store, FLOW, limits=Limits(schedules=10_000_000)).of(SYSTEM)
    at = once(now - timedelta(seconds=20))
    for start in range(0, posts, MAX_CREATE):
        numbers = range(start, min(start + MAX_CREATE, posts))
        await mine.create_many(
            [NewSchedule(f"{name}-{n}", at, "send", hand_over="http") for n in numbers]
        )
    await store.close()
