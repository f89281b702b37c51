"""The command line of all benchmarks, and the check that the machine is quiet.

A full run starts only while the load average is low, since other work distorts the figures. The
load is stored with the results.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
QUICK_RESULTS = Path(__file__).parents[1] / ".bench" / "quick"
MAX_LOAD = 1.5
WAIT_S = 300
POLL_S = 5


class Busy(Exception):
    """The load average stayed above MAX_LOAD for WAIT_S seconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of a benchmark, and the load average when it started."""

    quick: bool
    with_peers: bool
    out: Path
    load: float


def parse(name: str, description: str | None, arguments: Sequence[str] | None) -> Options:
    """Return the options of a benchmark; exit with status 2 if the machine stays busy."""
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=description)
    parser.add_argument("--quick", action="store_true", help="a small run; its figures are noise")
    parser.add_argument("--no-peers", action="store_true", help="do not measure other libraries")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for the results (default: benchmarks/results, .bench/quick with --quick)",
    )
    given = parser.parse_args(arguments)
    try:
        load = os.getloadavg()[0] if given.quick else wait_until_quiet()
    except Busy as error:
        parser.exit(2, f"benchmark: {error}\n")
    out = given.out or (QUICK_RESULTS if given.quick else RESULTS)
    return Options(given.quick, not given.no_peers, out, load)


def wait_until_quiet(
    load: Callable[[], float] = lambda: os.getloadavg()[0],
    sleep: Callable[[float], object] = time.sleep,
) -> float:
    """Return the load average once it is at most MAX_LOAD; raise Busy after WAIT_S seconds.

    It waits because the average includes the previous benchmark for a minute or two.
    """
    found = load()
    if found > MAX_LOAD:
        minutes = WAIT_S // 60
        print(
            f"benchmark: load average is {found:.1f}; waiting up to {minutes} min for {MAX_LOAD}",
            file=sys.stderr,
        )
    for _ in range(WAIT_S // POLL_S):
        if found <= MAX_LOAD:
            return found
        sleep(POLL_S)
        found = load()
    raise Busy(
        f"load average is {found:.1f}, above {MAX_LOAD}: the figures would be noise. Stop other "
        "work on this machine and run again, or use --quick to see that the benchmark runs"
    )
