"""`make test-faults`: every scenario in its long form, and the table.

Ends with 1 when a job was lost or done twice, when another job died than those planted, when a
history is not a way through the table of transitions, or when a recovery took too long.
"""

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from tests.servers import NO_SERVER, find_binaries
from tests.system.faults.audit import Verdict, table
from tests.system.faults.scenarios import SCENARIOS, Load, Scenario, run_scenario
from tests.system.faults.servers import Cluster, own_cluster

BUSY_SHARE = 0.25
"""Of a processor while draining; more means that the worker spins."""


def _run(scenario: Scenario, load: Load, cluster: Cluster, folder: Path) -> Verdict:
    try:
        verdict = run_scenario(scenario, load, cluster, folder)
    except (AssertionError, TimeoutError):
        return Verdict(scenario.name, faults=[traceback.format_exc()])
    if (verdict.draining_cpu or 0) > BUSY_SHARE:
        verdict.faults.append("the worker spins while it drains")
    return verdict


def main() -> int:
    """Run them one after another."""
    parser = argparse.ArgumentParser(prog="make test-faults")
    parser.add_argument("only", nargs="?", default="", help="scenarios whose name has this in it")
    parser.add_argument("--jobs", type=int, default=1_000, help="jobs of each scenario")
    parser.add_argument("--rounds", type=int, default=3, help="faults in a row")
    parser.add_argument("--quick", action="store_true", help="short leases; rates are not judged")
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(scenario.name for scenario in SCENARIOS))
        return 0
    binaries = find_binaries()
    if binaries is None:
        print(NO_SERVER)
        return 1
    load = Load(chosen.jobs, chosen.rounds, chosen.quick)
    verdicts: list[Verdict] = []
    with (
        tempfile.TemporaryDirectory(prefix="duly-faults-", ignore_cleanup_errors=True) as name,
        own_cluster(Path(name, "server"), binaries) as cluster,
    ):
        for number, scenario in enumerate(SCENARIOS):
            if chosen.only not in scenario.name:
                continue
            if scenario.lacks is not None:
                print(f"skipped: {scenario.name}: {scenario.lacks}")
                continue
            print(f"{scenario.name} ...", flush=True)
            verdicts.append(_run(scenario, load, cluster, Path(name, str(number))))
    print(table(verdicts))
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
