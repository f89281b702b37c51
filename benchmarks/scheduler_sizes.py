"""Measures the planner with ten thousand, a hundred thousand and a million stored schedules.

For each size: how fast more are created, how fast due ones are drained into jobs, and how late
handlers start in steady state.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.scheduler_burst import drain
from benchmarks.scheduler_fill import fill
from benchmarks.scheduler_rows import Desk, create, now_ms, opened
from benchmarks.scheduler_steady import Lateness, Load, measure_steady


@dataclass(frozen=True, slots=True)
class Stored:
    """Figures with one number of stored schedules."""

    database: str
    schedules: int
    created_per_s: float
    fires_per_s: float
    lateness: Lateness

    def to_json(self) -> dict[str, object]:
        return asdict(self)


async def measure_stored(database: str, url: str, folder: Path, count: int, load: Load) -> Stored:
    """Measure one size in its own database."""
    print(f"benchmark: {database}, {count:,} stored schedules", file=sys.stderr)
    desk, store = Desk(url), opened(url)
    try:
        await fill(desk, store, count)
        created = await create(store, load.created, first=count)
        desk.reset(now_ms(), load.due)
        fires = await drain(store, desk, load.due)
        await store.close()
        lateness = await measure_steady(desk, folder, load)
    finally:
        desk.close()
    return Stored(database, count, created, fires, lateness)


def worst_ratio(stored: Sequence[Stored], database: str) -> float:
    """Return the highest lateness ratio over all sizes on one database."""
    return max(each.lateness.ratio for each in stored if each.database == database)
