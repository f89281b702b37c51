"""Measures a tick that claims ten due rows, for different numbers of stored rows.

The sizes alternate tick by tick, so that load from other processes affects all of them. Which ten
rows are due changes from tick to tick; making them due is not timed.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from statistics import median
from time import perf_counter

from benchmarks.index_claims import Disagreement
from benchmarks.index_places import Place
from benchmarks.index_rows import NOW_MS, schedule_id
from duly.stores import open_store

DUE = 10
LATE_MS = 500
WARM_UP = 15
"""Ticks that are not counted, in which statements are prepared and caches filled."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """Milliseconds of each tick by number of stored rows."""

    ms: dict[int, tuple[float, ...]]

    def median(self, stored: int) -> float:
        return median(self.ms[stored])

    def growth(self) -> float:
        """Return the median ratio of the largest to the smallest size, tick by tick."""
        pairs = zip(self.ms[max(self.ms)], self.ms[min(self.ms)], strict=True)
        return median(large / small for large, small in pairs)

    def to_json(self) -> list[dict[str, object]]:
        return [
            {"stored": stored, "median_ms": median(each), "best_ms": min(each)}
            for stored, each in self.ms.items()
        ]


async def measure_ticks(places: Mapping[int, Place], count: int, seed: int) -> Ticks:
    """Claim the due rows of each place in turn, `count` times."""
    random = Random(seed)
    stores = {stored: open_store(place.url) for stored, place in places.items()}
    times: dict[int, list[float]] = {stored: [] for stored in places}
    gc.collect()
    for tick in range(WARM_UP + count):
        for stored, place in places.items():
            due = random.sample(range(stored), DUE)
            place.make_due(due, NOW_MS - LATE_MS)
            started = perf_counter()
            claimed = await stores[stored].claim_due(NOW_MS)
            seconds = perf_counter() - started
            if sorted(each.schedule_id for each in claimed) != sorted(map(schedule_id, due)):
                raise Disagreement(f"{len(claimed)} rows were claimed, not the {DUE} that were due")
            if tick >= WARM_UP:
                times[stored].append(seconds * 1000)
    for store in stores.values():
        await store.close()
    return Ticks({stored: tuple(each) for stored, each in times.items()})
