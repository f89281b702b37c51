"""Measures the scheduler: a burst, lateness in steady state, the cost of stored schedules, peers.

Prints tables, writes scheduler.json and scheduler.png, and ends with one line per bar; exit status
1 means that a bar is not met. Databases commit durably. A peer that cannot be measured here is
reported as n/a with the reason.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

# `python benchmarks/scheduler.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import NO_SERVER, PostgresServer, find_binaries

from benchmarks.options import parse
from benchmarks.report import machine_facts, today, write_png, write_results
from benchmarks.scheduler_burst import Burst, measure_burst
from benchmarks.scheduler_fill import fill
from benchmarks.scheduler_mix import PLANNERS, Mix, Share, measure_mix
from benchmarks.scheduler_peer_clock import SECONDS
from benchmarks.scheduler_peers import left_out, measure_peers
from benchmarks.scheduler_rare import Rare, measure_rare
from benchmarks.scheduler_report import Figures, bars, lateness_chart, rates_chart, text
from benchmarks.scheduler_rows import Desk, Lost, opened
from benchmarks.scheduler_sizes import Stored, measure_stored
from benchmarks.scheduler_snapshot import HeldPlan, measure_held_plan
from benchmarks.scheduler_steady import Load
from benchmarks.servers import NoServer, durable_server, filesystem, fsync_ms, scratch_folder


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. The first number of stored schedules is observed for longer."""

    burst: int
    rounds: int
    on_postgresql: tuple[int, ...]
    on_sqlite: tuple[int, ...]
    load: Load
    later_s: float
    """How long the other numbers are observed."""
    mix: Share
    idle_s: float
    entries: tuple[int, ...]
    passed: int
    """Schedules that fire and finish while a snapshot is held."""
    moves: int
    """How often rows advance while it is held."""


FULL = Size(
    burst=100_000,
    rounds=3,
    on_postgresql=(10_000, 100_000, 1_000_000),
    on_sqlite=(10_000, 100_000),
    load=Load(created=5_000, due=10_000, per_s=200, seconds=30, lead_s=8),
    later_s=15,
    mix=Share(1_000, 5_000, 4_000),
    idle_s=20,
    entries=(1_000, 10_000),
    passed=300_000,
    moves=1_000,
)
QUICK = Size(
    burst=2_000,
    rounds=1,
    on_postgresql=(500,),
    on_sqlite=(500,),
    load=Load(created=100, due=200, per_s=5, seconds=2, lead_s=2),
    later_s=1,
    mix=Share(60, 100, 40),
    idle_s=1,
    entries=(50,),
    passed=30_000,
    moves=200,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    options = parse("scheduler", __doc__, arguments)
    size = QUICK if options.quick else FULL
    # The store would warn about an old SQLite for every file.
    logging.getLogger("duly.stores").setLevel(logging.ERROR)
    try:
        figures = measure(size, with_peers=options.with_peers)
    except (Lost, NoServer) as error:
        print(f"benchmark: stopped, there are no figures: {error}", file=sys.stderr)
        return 1
    measured = bars(figures)
    print(text(figures))
    results = {
        "benchmark": "scheduler",
        "date": today(),
        "size": asdict(size),
        **figures.to_json(),
        "bars": [bar.to_json() for bar in measured],
    }
    write_results(options, "scheduler", results)
    charts = [rates_chart(figures), lateness_chart(figures)]
    write_png(options.out / "scheduler.png", charts, (3, 2))
    print("", *measured, sep="\n")
    return 0 if all(bar.is_met for bar in measured) else 1


def measure(size: Size, *, with_peers: bool) -> Figures:
    """Run all measurements on one server and in one folder."""
    binaries = find_binaries()
    if binaries is None:
        raise NoServer(NO_SERVER)
    with scratch_folder() as folder, durable_server(folder, binaries) as server:
        facts = machine_facts("psycopg", "sqlalchemy", "msgspec") | {
            "disk": f"{filesystem(folder)}, fsync of a page {fsync_ms(folder):.2f} ms",
        }
        burst = asyncio.run(_burst(server, size))
        mix = asyncio.run(_mix(server, size))
        stored = list(_stored(server, folder, size))
        rare = _rare(server, size)
        held = _held(server, size)
        peers = measure_peers(server, size.entries, SECONDS) if with_peers else None
    return Figures(facts, burst, stored, mix, peers or left_out(size.entries), rare, held)


async def _burst(server: PostgresServer, size: Size) -> Burst:
    print(f"benchmark: a burst of {size.burst:,}", file=sys.stderr)
    url = server.create()
    desk, store = Desk(url), opened(url)
    try:
        await fill(desk, store, size.burst)
        return await measure_burst(url, store, desk, size.burst, size.rounds)
    finally:
        await store.close()
        desk.close()
        server.drop(url)


async def _mix(server: PostgresServer, size: Size) -> Mix:
    print(f"benchmark: a mix of {size.mix.total:,} schedules", file=sys.stderr)
    url = server.create()
    desk, stores = Desk(url), [opened(url) for _ in range(PLANNERS)]
    try:
        return await measure_mix(desk, stores, size.mix, size.idle_s)
    finally:
        for store in stores:
            await store.close()
        desk.close()
        server.drop(url)


def _stored(server: PostgresServer, folder: Path, size: Size) -> Sequence[Stored]:
    found = []
    for count in size.on_postgresql:
        url = server.create()
        load = _load(size, count == size.on_postgresql[0])
        found.append(asyncio.run(measure_stored("PostgreSQL", url, folder, count, load)))
        server.drop(url)
    for count in size.on_sqlite:
        url = f"sqlite:///{folder}/{count}.db"
        load = _load(size, is_first=False)
        found.append(asyncio.run(measure_stored("SQLite", url, folder, count, load)))
    return found


def _rare(server: PostgresServer, size: Size) -> Rare:
    url = server.create()
    try:
        return asyncio.run(measure_rare(url, size.on_postgresql[-1], 10 * size.rounds))
    finally:
        server.drop(url)


def _held(server: PostgresServer, size: Size) -> HeldPlan:
    url = server.create()
    try:
        return asyncio.run(measure_held_plan(url, size.passed, size.moves))
    finally:
        server.drop(url)


def _load(size: Size, is_first: bool) -> Load:
    seconds = size.load.seconds if is_first else size.later_s
    return replace(size.load, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
