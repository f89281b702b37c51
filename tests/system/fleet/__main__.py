"""`make test-dispatch`: the fleet in its long form, and what it counted."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.servers import NO_SERVER, find_binaries, shared_server
from tests.system.fleet.trial import run_trial


def main() -> int:
    """Run it, and end with 1 when anything was lost or dispatched twice."""
    parser = argparse.ArgumentParser(prog="make test-dispatch")
    parser.add_argument("--schedules", type=int, default=5_000, help="how many are due")
    chosen = parser.parse_args()
    binaries = find_binaries()
    if binaries is None:
        print(NO_SERVER)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="duly-fleet-") as name,
        shared_server(Path(name), binaries) as server,
    ):
        tally = run_trial(server.create(), chosen.schedules)
    print(tally)
    return 0 if not (tally.lost or tally.doubled or tally.unaccounted or tally.undeclared) else 1


if __name__ == "__main__":
    sys.exit(main())
