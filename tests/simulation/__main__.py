"""`make sim`: many seeds on all processors, totals, and the trace of every seed that fails.

Ends with 1 when a promise was not kept; what it prints then replays the seed alone.
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from duly.testing.simulation import Verdict, simulate
from tests.simulation.planted import BUGS, seeds_until_caught

TOLD_MAX = 5


def judge(seed: int) -> Verdict:
    """One seed, without the pauses of the collector: a simulation is short."""
    gc.disable()
    try:
        return simulate(seed)
    finally:
        gc.enable()
        gc.collect()


def verdicts(seeds: range, processes: int) -> Iterator[Verdict]:
    """All of them, as they come."""
    if processes == 1:
        yield from map(judge, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(judge, seeds, chunksize=4)


def table(judged: list[Verdict], seconds: float) -> str:
    """What happened in all, for a reader who wants to know whether anything did."""
    faults = sum((each.faults for each in judged), Counter[str]())
    lines = [
        f"{len(judged)} seeds in {seconds:.1f} s, {len(judged) / seconds:.1f} a second",
        f"  occurrences   {sum(each.occurrences for each in judged)}",
        f"  handlers run  {sum(each.starts for each in judged)}",
        f"  verbs         {sum(each.verbs for each in judged)}",
        f"  left behind   {sum(each.left_behind for each in judged)}",
        f"  faults        {faults.total()}",
    ]
    lines += [f"    {kind:<13} {count}" for kind, count in sorted(faults.items())]
    lines.append(f"  failed seeds  {sum(not each.is_good for each in judged)}")
    return "\n".join(lines)


def hunt() -> int:
    """How many seeds each planted bug needs."""
    missed = 0
    for plant, promises in BUGS:
        count, broken = seeds_until_caught(plant, promises)
        missed += count is None
        said = f"{count} seeds" if count is not None else "not found"
        print(f"{plant.__name__:<24} {said:<10} {', '.join(sorted(broken))}", flush=True)
    return 1 if missed else 0


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--planted", action="store_true", help="count seeds until bugs are found")
    chosen = parser.parse_args()
    if chosen.planted:
        return hunt()
    began = time.perf_counter()
    judged, failed = [], 0
    for verdict in verdicts(range(chosen.first, chosen.first + chosen.seeds), chosen.processes):
        judged.append(verdict)
        if not verdict.is_good and (failed := failed + 1) <= TOLD_MAX:
            print(verdict.told(), flush=True)
    print(table(judged, time.perf_counter() - began))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
