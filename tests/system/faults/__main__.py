"""`make test-faults`: every scenario in its long form, and the table.

Ends with 1 when the audit finds a fault, such as a job that was lost or done twice, or when a
recovery took too long.
"""

import argparse
import sys
import traceback
from pathlib import Path

from tests.system.audit import Verdict
from tests.system.cluster import Cluster, cluster_of_command
from tests.system.faults.outcome import Outcome, table
from tests.system.faults.scenarios import SCENARIOS, Scenario, run_scenario
from tests.system.faults.site import Load

BUSY_SHARE = 0.25
"""Of a processor while draining; more means that the worker spins."""


def _run(scenario: Scenario, load: Load, cluster: Cluster, folder: Path) -> Outcome:
    try:
        outcome = run_scenario(scenario, load, cluster, folder)
    except (AssertionError, TimeoutError):
        return Outcome(scenario.name, Verdict(faults=[traceback.format_exc()]))
    if (outcome.draining_cpu or 0) > BUSY_SHARE:
        outcome.verdict.faults.append("the worker spins while it drains")
    return outcome


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
    load = Load(chosen.jobs, chosen.rounds, chosen.quick)
    outcomes: list[Outcome] = []
    with cluster_of_command("faults") as (cluster, folder):
        for number, scenario in enumerate(SCENARIOS):
            if chosen.only not in scenario.name:
                continue
            if scenario.lacks is not None:
                print(f"skipped: {scenario.name}: {scenario.lacks}")
                continue
            print(f"{scenario.name} ...", flush=True)
            outcomes.append(_run(scenario, load, cluster, folder / str(number)))
    print(table(outcomes))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
