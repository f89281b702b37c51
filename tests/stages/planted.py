"""`make planted`: list the planted faults that each target catches, from pytest's collection.

A test with `@pytest.mark.planted("family")` plants a fault, or shows a bad sample, and passes only
when the check under test reports it. Each of its parameters is one planted fault.
"""

import argparse
import contextlib
import io
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.stages.catalogue import MARKER, ROOT

PLANTED = "planted"
_STORES = "tests/conformance/test_broken.py::test_broken_backend_fails[{}]".format
REPLACED = {
    # ADR 0023: runs are counted on the document, no longer by reading the ledger.
    _STORES("KeepsTheRuns"): _STORES("KeepsRunsOfWithdrawn"),
    _STORES("PrunesCountedRuns"): _STORES("ForgetsRunsInRepairs"),
    # ADR 0027: at-most-once jobs may be claimed ahead; a loss before the start must not count.
    _STORES("StartsMoreThanItHasSlots"): _STORES("SuspectsWhatWaited"),
}
"""Faults of rules that have since changed, with the faults that replace them."""


@dataclass(frozen=True)
class Fault:
    """A planted fault, named by the test that catches it."""

    nodeid: str
    family: str
    is_extended: bool

    @property
    def test(self) -> str:
        """Return the test id without its parameter."""
        return without_parameter(self.nodeid)


class Collector:
    """A pytest plugin that keeps the planted faults of a collection."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Read the marks of every test that was collected."""
        for item in session.items:
            mark = item.get_closest_marker(PLANTED)
            if mark is not None:
                is_extended = item.get_closest_marker(MARKER) is not None
                self.faults.append(Fault(item.nodeid, str(mark.args[0]), is_extended))


def collected_faults(*paths: str) -> list[Fault]:
    """Return the planted faults of all tests, or of some paths."""
    collector = Collector()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = pytest.main(
            ["--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *paths],
            plugins=[collector],
        )
    if status != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected: {output.getvalue()[-2_000:]}")
    return collector.faults


def without_parameter(nodeid: str) -> str:
    """Return a node id without its parameter."""
    path, _, rest = nodeid.partition("::")
    return f"{path}::{rest.partition('[')[0]}"


def before_of(nodeids: Iterable[str], faults: Iterable[Fault]) -> dict[str, str]:
    """Return the planted faults of an older collection with their families.

    An older commit may lack the marks, so a test counts if it is marked now.
    """
    families = {fault.test: fault.family for fault in faults}
    tests = {nodeid: without_parameter(nodeid) for nodeid in nodeids}
    return {nodeid: families[test] for nodeid, test in tests.items() if test in families}


def table(faults: list[Fault], before: dict[str, str] | None) -> tuple[list[str], list[str]]:
    """Return the lines of the table, and the faults that are no longer caught."""
    test = Counter(fault.family for fault in faults if not fault.is_extended)
    every = Counter(fault.family for fault in faults)
    former = Counter((before or {}).values())
    now = {fault.nodeid for fault in faults}
    lost = sorted(nodeid for nodeid in before or () if not {nodeid, REPLACED.get(nodeid)} & now)
    lost_by_family = Counter((before or {})[nodeid] for nodeid in lost)
    head = (
        f"{'family':<16}{'before':>8}{'make test':>11}{'test-all adds':>15}{'both':>6}{'lost':>6}"
    )
    rows = [
        f"{name:<16}{cell:>8}{test[name]:>11}{every[name] - test[name]:>15}{every[name]:>6}"
        f"{lost_by_family[name] if before is not None else '-':>6}"
        for name in sorted(every | former)
        for cell in (former[name] if before is not None else "-",)
    ]
    sums = f"{'all':<16}{former.total() if before is not None else '-':>8}{test.total():>11}"
    sums += f"{every.total() - test.total():>15}{every.total():>6}"
    sums += f"{len(lost) if before is not None else '-':>6}"
    return [head, *rows, sums], lost


def main() -> int:
    """Print the table. Return 1 when a fault is no longer caught."""
    parser = argparse.ArgumentParser(prog="make planted", description=__doc__)
    parser.add_argument(
        "--before",
        type=Path,
        help="node ids of an older commit, as `pytest --collect-only -q` prints them",
    )
    options = parser.parse_args()
    faults = collected_faults()
    before = None
    if options.before is not None:
        lines = options.before.read_text().splitlines()
        before = before_of((line for line in lines if "::" in line), faults)
    lines, lost = table(faults, before)
    print(*lines, sep="\n")
    for nodeid in sorted(REPLACED.keys() & (before or {}).keys() - set(lost)):
        print(f"replaced: {nodeid} by {REPLACED[nodeid]}")
    for nodeid in lost:
        print(f"lost: {nodeid}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
