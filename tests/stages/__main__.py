"""`make test-all`: run every stage, or those named, and print a table at the end.

A stage that fails does not stop the others; the exit status is 1 when any failed.
"""

import argparse
import sys

from tests.stages.catalogue import all_stages
from tests.stages.interpreters import (
    SUPPORTED,
    Interpreter,
    find_interpreters,
    own_version,
)
from tests.stages.packages import install_packages
from tests.stages.running import Counts, run_stage, table


def other_interpreters() -> list[Interpreter]:
    """Return the other interpreters found, and print which were found and which were not."""
    found = find_interpreters()
    print(f"test-all: Python {own_version()} runs this: {sys.executable}")
    for version, interpreter in found.items():
        if version != own_version() and (interpreter is not None or version in SUPPORTED):
            where = "not found, not tested" if interpreter is None else interpreter.program
            print(f"test-all: Python {version}: {where}")
    return [each for each in found.values() if each and each.version != own_version()]


def main() -> int:
    """Run the stages. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.stages", description=__doc__)
    parser.add_argument("names", nargs="*", help="stages to run; all when none is named")
    parser.add_argument("--list", action="store_true", help="list the stages and end")
    parser.add_argument("--tools", action="store_true", help="install missing tools and end")
    options = parser.parse_args()
    if options.tools:
        install_packages()
        return 0
    stages = all_stages(other_interpreters())
    known = [stage.name for stage in stages]
    if options.list:
        for stage in stages:
            print(f"  {stage.name:<14}{stage.about}")
        return 0
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"no stage {', '.join(unknown)}; stages: {', '.join(known)}")
    install_packages()
    chosen = [stage for stage in stages if not options.names or stage.name in options.names]
    outcomes = [run_stage(stage) for stage in chosen]
    print("", *table(outcomes), sep="\n")
    for each in outcomes:
        if each.fault:
            print(f"failed: {each.name}: {each.fault}")
    total = sum((each.counts for each in outcomes), Counts())
    print(f"{total} in {sum(each.seconds for each in outcomes):.2f}s")
    return 1 if any(each.fault for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
