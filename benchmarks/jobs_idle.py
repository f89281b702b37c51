"""Measures the cost of an idle worker, and how soon it picks up a single job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

from sqlalchemy import event

from duly import Duly, Flow
from duly.stores.sql.store import SqlStore


@dataclass(frozen=True, slots=True)
class Idle:
    """Figures of one worker with its keeper, at default settings."""

    queries_per_second: float
    cpu_percent: float
    pickup_p50_ms: float
    pickup_p99_ms: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def measure_idle(url: str, seconds: float, pickups: int) -> Idle:
    """Let a worker idle, then enqueue jobs one by one, each after the previous one has ended."""
    return asyncio.run(_measure(url, seconds, pickups))


async def _measure(url: str, seconds: float, pickups: int) -> Idle:
    flow = Flow("bench")
    begun = asyncio.Queue[float]()

    @flow.action
    async def noop() -> None:
        begun.put_nowait(time.perf_counter())

    async with Duly(url, flows=[flow]).running() as app:
        latencies = []
        for _ in range(pickups):
            asked_at = time.perf_counter()
            await app.client.enqueue(noop)
            latencies.append(await begun.get() - asked_at)
            await asyncio.sleep(0.01)
        queries = _Queries(app)
        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        spent = time.perf_counter() - began
        share = (time.process_time() - cpu) / spent
    return Idle(
        queries.count / spent,
        share * 100,
        _at(latencies, 0.5) * 1000,
        _at(latencies, 0.99) * 1000,
    )


class _Queries:
    """Counts statements on the store's connections."""

    def __init__(self, app: Duly) -> None:
        self.count = 0
        engine = cast(SqlStore, app.store)._engine  # noqa: SLF001 - counted where they are sent
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, *_: object) -> None:
        self.count += 1


def _at(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]
