"""`make soak`: soaks with real processes, and a table; ends with 1 where a promise broke."""

import argparse
import sys
from collections import Counter

from tests.system.audit import Verdict
from tests.system.cluster import cluster_of_command
from tests.system.soak.soaks import Soak, run, soaks

HEAD = (
    f"{'store':<11} {'soak':<9} {'schedul.':>7} {'processes':>9} {'killed':>6} {'times':>8} "
    f"{'lost':>5} {'unfinished':>10} {'doubled':>7} {'again':>6} {'undeclared':>10} "
    f"{'deadlocks':>9}  what became of them"
)


def row_of(place: str, soak: Soak, verdict: Verdict, killed: int) -> str:
    """Return a line of the table."""
    counts: Counter[str] = Counter()
    for (_, state, _), times in verdict.outcomes.items():
        counts[state] += times
    states = ", ".join(f"{state} {count:,}" for state, count in sorted(counts.items()))
    return (
        f"{place:<11} {soak.name:<9} {soak.schedules:>7,} {len(soak.roles):>9} "
        f"{killed:>6} {verdict.expected:>8,} {verdict.lost:>5} {verdict.unfinished:>10} "
        f"{verdict.doubled:>7} {verdict.repeated:>6} {verdict.undeclared:>10} "
        f"{verdict.deadlocks:>9}  {states}{'' if verdict.is_good else ' BROKEN'}"
    )


def main() -> int:
    """Run them all. Return the exit status."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--only", default="", help="part of `store name`, as in `sqlite def`")
    options = parser.parse_args()
    are_good = True
    with cluster_of_command("soak") as (cluster, folder):
        print(HEAD)
        for number, (place, soak) in enumerate(soaks(quick=options.quick)):
            if options.only not in f"{place} {soak.name}":
                continue
            own = folder / str(number)
            own.mkdir()
            url = cluster.create() if place == "postgresql" else f"sqlite:///{own}/soak.db"
            verdict, killed = run(url, own, soak)
            lines = [row_of(place, soak, verdict, killed), *verdict.lines(soak.name)]
            print(*lines, sep="\n", flush=True)
            are_good = are_good and verdict.is_good
    return 0 if are_good else 1


if __name__ == "__main__":
    sys.exit(main())
