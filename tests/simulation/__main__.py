"""`make sim`: run many seeds on all processors, print totals and the trace of each failed seed.

The exit status is 1 when a promise was broken. The output includes the command to replay a seed.
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

PRINTED_MAX = 5


def judge(seed: int) -> Verdict:
    """Simulate one seed, with the garbage collector off because a simulation is short."""
    gc.disable()
    try:
        return simulate(seed)
    finally:
        gc.enable()
        gc.collect()


def verdicts(seeds: range, processes: int) -> Iterator[Verdict]:
    """Yield the verdicts of all seeds in order."""
    if processes == 1:
        yield from map(judge, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(judge, seeds, chunksize=4)


def table(judged: list[Verdict], seconds: float) -> str:
    """Return the totals of all seeds, which show how much the simulation covered."""
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
    """Print how many seeds it takes to find each planted bug. Return 1 if one is not found."""
    missed = 0
    for plant, promises in BUGS:
        count, broken = seeds_until_caught(plant, promises)
        missed += count is None
        needed = f"{count} seeds" if count is not None else "not found"
        print(f"{plant.__name__:<24} {needed:<10} {', '.join(sorted(broken))}", flush=True)
    return 1 if missed else 0


def main() -> int:
    """Run the seeds and print the totals. Return the exit status."""
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--planted", action="store_true", help="count the seeds until each planted bug is found"
    )
    chosen = parser.parse_args()
    if chosen.planted:
        return hunt()
    began = time.perf_counter()
    judged, failed = [], 0
    for verdict in verdicts(range(chosen.first, chosen.first + chosen.seeds), chosen.processes):
        judged.append(verdict)
        if not verdict.is_good and (failed := failed + 1) <= PRINTED_MAX:
            print(verdict.told(), flush=True)
    print(table(judged, time.perf_counter() - began))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
