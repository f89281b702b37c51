"""`make test-dispatch`: the trial in its long form; ends with 1 when the audit finds a fault."""

import argparse
import sys

from tests.system.cluster import cluster_of_command
from tests.system.fleet.trial import run_trial, summary


def main() -> int:
    """Run it and print what was counted. Return the exit status."""
    parser = argparse.ArgumentParser(prog="make test-dispatch")
    parser.add_argument("--schedules", type=int, default=5_000, help="how many are due")
    chosen = parser.parse_args()
    with cluster_of_command("fleet") as (cluster, folder):
        verdict = run_trial(cluster.create(), folder / "fleet", chosen.schedules)
    print(summary(verdict))
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
