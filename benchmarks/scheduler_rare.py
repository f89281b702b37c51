"""Compares a planner of a rare flow in a shared database with the planner of the common flow.

Both plan the same number of due rows, alternating, in one database whose rows nearly all belong to
the common flow. The cost of a step must depend on what is due for it, not on rows of other flows.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter

from benchmarks.scheduler_fill import fill
from benchmarks.scheduler_rows import FLOW, Desk, Lost, definition, now_ms, opened
from duly.engine.ids import new_id
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import ScheduleId
from duly.stores.port import Store

RARE = "rare"
DUE = 10
"""Rows that each step plans; also the number of rows of the rare flow."""
MAKE_DUE = (
    "UPDATE duly_schedule_index SET nominal_ms = :ms, run_at_ms = :ms WHERE row_id IN "
    "(SELECT row_id FROM duly_schedule_rules WHERE flow = :flow ORDER BY scope LIMIT :due)"
)


@dataclass(frozen=True, slots=True)
class Rare:
    """Milliseconds of planning steps of both flows, alternating."""

    schedules: int
    own_ms: list[float]
    rare_ms: list[float]
    own_idle_ms: list[float]
    """Steps that find nothing due."""
    rare_idle_ms: list[float]

    @property
    def ratio(self) -> float:
        """Return the rare flow's step time relative to the other; the worse of busy and idle."""
        busy = median(self.rare_ms) / median(self.own_ms)
        return max(busy, median(self.rare_idle_ms) / median(self.own_idle_ms))

    def to_json(self) -> dict[str, object]:
        """Return all figures for later comparison."""
        return asdict(self)


async def measure_rare(url: str, count: int, rounds: int) -> Rare:
    """Plan both flows, alternating, in a database of `count` schedules."""
    print(f"benchmark: a rare flow among {count:,} schedules", file=sys.stderr)
    desk, store = Desk(url), opened(url)
    found: dict[str, list[float]] = {"own": [], "rare": [], "own_idle": [], "rare_idle": []}
    try:
        await fill(desk, store, count)
        await store.put_schedules([_write(number) for number in range(DUE)])
        desk.settle()
        for number in range(rounds):
            # The first run has colder caches, so the order alternates.
            for name, flow in sorted({"own": FLOW, "rare": RARE}.items(), reverse=number % 2 == 1):
                desk.run(MAKE_DUE, ms=now_ms() - 1_000, flow=flow, due=DUE)
                found[name].append(await _timed(_step(store, flow, DUE)))
                found[f"{name}_idle"].append(await _timed(_step(store, flow, 0)))
    finally:
        await store.close()
        desk.close()
    return Rare(count, found["own"], found["rare"], found["own_idle"], found["rare_idle"])


def _write(number: int) -> ScheduleWrite:
    key = ScheduleKey(RARE, f"user:{number}", "digest")
    return ScheduleWrite(key, ScheduleId(new_id("sch_")), definition(number))


def _step(store: Store, flow: str, due: int) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        report = await store.plan_occurrences(PlanRequest(flows=(flow,)))
        if report.rows != due:
            raise Lost(f"{due} rows of {flow} were due; {report.rows} were planned")

    return step


async def _timed(step: Callable[[], Awaitable[None]]) -> float:
    started = perf_counter()
    await step()
    return (perf_counter() - started) * 1_000


def rare_text(rare: Rare) -> str:
    """Return one line to print."""
    step, own = median(rare.rare_ms), median(rare.own_ms)
    idle, own_idle = median(rare.rare_idle_ms), median(rare.own_idle_ms)
    return (
        f"a step of a rare flow among {rare.schedules:,}: {step:.1f} ms, of the common flow "
        f"{own:.1f} ms; with nothing due {idle:.1f} and {own_idle:.1f} ms"
    )
