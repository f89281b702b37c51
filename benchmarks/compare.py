"""Compares the cost of the main operations with an earlier commit; none may cost more.

Operations: planning due schedules, and inserting, claiming and finishing jobs, both in batches of
500; inserting one job, with and without an idempotency key; creating one schedule; editing the
input of one, and the trigger of one, which withdraws its planned job. Each cost is per operation:
CPU time of the process and of its PostgreSQL backend, statements with COMMIT, and rows that the
server read and wrote. Checkpoints of SQLite files run between turns and are not counted.

In every pair each side has its own process and new database, on one durable PostgreSQL and in
SQLite files; the two alternate (ABBA). A bar is the median over the pairs of ours / base. Writes
compare.json and compare.png; exit status 1 means that a bar is not met. A quick run checks no bar.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# `python benchmarks/compare.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import NO_SERVER, PostgresServer, find_binaries

from benchmarks.compare_report import Comparison, Costs, Pair, bars, chart, statements_text, text
from benchmarks.compare_sides import (
    BASE,
    OURS,
    STORES,
    Checkout,
    NoComparison,
    Side,
    checkouts,
    running,
)
from benchmarks.options import QUICK_RESULTS, RESULTS, Busy, Options, wait_until_quiet
from benchmarks.report import machine_facts, today, write_png, write_results
from benchmarks.servers import NoServer, durable_server, filesystem, fsync_ms, scratch_folder

SIDES = (BASE, OURS)
ABBA = (0, 1, 1, 0)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: operations per turn of one side, and turns per pair."""

    pairs: int
    rounds: int
    """Rounds of ABBA; each gives each side two turns."""
    counts: Mapping[str, int]


FULL = Size(
    pairs=7,
    rounds=2,
    counts={
        "plan": 3_000,
        "job": 3_000,
        "enqueue": 150,
        "keyed-enqueue": 100,
        "create": 60,
        "edit-input": 80,
        "edit-trigger": 50,
    },
)
QUICK = Size(pairs=1, rounds=1, counts=dict.fromkeys(FULL.counts, 10) | {"plan": 50, "job": 50})


@dataclass(frozen=True, slots=True)
class Request:
    """The command line."""

    options: Options
    base: str
    pairs: int | None
    shows_statements: bool


class Race:
    """Measures two checkouts on one server."""

    def __init__(
        self, sides: Sequence[Checkout], server: PostgresServer, folder: Path, size: Size
    ) -> None:
        self._sides = sides
        self._server = server
        self._folder = folder
        self._size = size
        self.comparisons = {
            (operation, store): Comparison(operation, store)
            for store in STORES
            for operation in size.counts
        }

    def run_pair(self, number: int, store: str) -> None:
        """Measure every operation on one store, each side in its own database."""
        # The side that goes first alternates from pair to pair.
        order = self._sides if number % 2 else self._sides[::-1]
        with ExitStack() as ends:
            sides = [
                ends.enter_context(running(each, store, self._server, self._folder, number))
                for each in order
            ]
            for side in sides:
                side.fill(self._size.counts["plan"])
            for operation in self._size.counts:
                comparison = self.comparisons[operation, store]
                costs = self._measure(comparison, sides)
                comparison.pairs.append(Pair(costs[BASE], costs[OURS]))
                print(
                    f"benchmark: pair {number} of {self._size.pairs}, {operation} on {store}: CPU "
                    f"{costs[BASE].cpu_us:,.0f} and {costs[OURS].cpu_us:,.0f} µs",
                    file=sys.stderr,
                )

    def _measure(self, comparison: Comparison, sides: Sequence[Side]) -> dict[str, Costs]:
        operation = comparison.operation
        count = self._size.counts[operation]
        for side in sides:
            side.run(operation, count)
            side.settle()
        timed: dict[str, Counter[str]] = {name: Counter() for name in SIDES}
        for turn in ABBA * self._size.rounds:
            side = sides[turn]
            timed[side.checkout.name].update(side.run(operation, count))
        found = {}
        for side in sides:
            name = side.checkout.name
            counts = side.run(operation, count, is_counted=True)
            side.finish(operation)
            comparison.texts[name] = Counter(counts["statements"])
            comparison.counted = count
            found[name] = costs_of(timed[name], counts, count, 2 * self._size.rounds)
        return found


def costs_of(timed: Mapping[str, int], counts: Mapping[str, Any], count: int, turns: int) -> Costs:
    """Return the costs of one operation, from all timed turns and one counted run."""
    per_us = 1_000 * count * turns
    rows = counts["rows"]
    return Costs(
        client_us=timed["client_ns"] / per_us,
        server_us=timed["server_ns"] / per_us,
        wall_us=timed["wall_ns"] / per_us,
        statements=sum(counts["statements"].values()) / count,
        rows=None if rows is None else rows / count,
    )


def measure(base: str, size: Size) -> tuple[dict[str, str], list[Comparison]]:
    """Run all pairs on one server; return the facts about the machine and the figures."""
    binaries = find_binaries()
    if binaries is None:
        raise NoServer(NO_SERVER)
    if platform.system() != "Linux":
        raise NoComparison("the CPU time of a PostgreSQL backend can be read on Linux only")
    with scratch_folder() as folder:
        return _measure_in(folder, base, size, binaries)


def _measure_in(
    folder: Path, base: str, size: Size, binaries: Path
) -> tuple[dict[str, str], list[Comparison]]:
    sides = checkouts(base, folder)
    with durable_server(folder, binaries) as server:
        facts = machine_facts("psycopg", "sqlalchemy", "msgspec") | {
            "disk": f"{filesystem(folder)}, fsync of a page {fsync_ms(folder):.2f} ms",
            **{each.name: each.revision for each in sides},
        }
        race = Race(sides, server, folder, size)
        for number in range(1, size.pairs + 1):
            for store in STORES:
                race.run_pair(number, store)
    return facts, list(race.comparisons.values())


def parse(arguments: Sequence[str] | None) -> Request:
    """Return the command line; exit with status 2 if the machine stays busy."""
    parser = argparse.ArgumentParser(prog="compare.py", description=__doc__)
    parser.add_argument(
        "--base", default="HEAD", help="the commit to compare with (default: the last one)"
    )
    parser.add_argument(
        "--pairs", type=int, help=f"how many pairs of runs (default: {FULL.pairs}; quick: 1)"
    )
    parser.add_argument(
        "--statements", action="store_true", help="print the statements that differ"
    )
    parser.add_argument("--quick", action="store_true", help="a small run; its figures are noise")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for the results (default: benchmarks/results, .bench/quick with --quick)",
    )
    given = parser.parse_args(arguments)
    if given.pairs is not None and given.pairs < 1:
        parser.error(f"--pairs is {given.pairs}; allowed: 1 or more")
    try:
        load = os.getloadavg()[0] if given.quick else wait_until_quiet()
    except Busy as error:
        parser.exit(2, f"benchmark: {error}\n")
    out = given.out or (QUICK_RESULTS if given.quick else RESULTS)
    options = Options(given.quick, with_peers=False, out=out, load=load)
    return Request(options, given.base, given.pairs, given.statements)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    request = parse(arguments)
    options = request.options
    whole = QUICK if options.quick else FULL
    size = Size(request.pairs or whole.pairs, whole.rounds, whole.counts)
    try:
        facts, comparisons = measure(request.base, size)
    except (NoComparison, NoServer) as error:
        print(f"benchmark: stopped, there are no figures: {error}", file=sys.stderr)
        return 1
    measured = bars(comparisons)
    print(text(facts, comparisons))
    if request.shows_statements:
        print("", statements_text(comparisons), sep="\n")
    results = {
        "benchmark": "compare",
        "date": today(),
        "machine": facts,
        "size": asdict(size),
        "comparisons": [each.to_json() for each in comparisons],
        "bars": [bar.to_json() for bar in measured],
    }
    write_results(options, "compare", results)
    write_png(options.out / "compare.png", [chart(each, comparisons) for each in STORES], (1, 1))
    print("", *measured, sep="\n")
    if options.quick:
        print("benchmark: a quick run checks no bars", file=sys.stderr)
        return 0
    return 0 if all(bar.is_met for bar in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
