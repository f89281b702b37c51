"""Prints a table of conformance results per backend at the end of a test run.

It is computed from the node ids of the reports, so it works with distributed test runs too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import pytest

FOLDER = "tests/conformance/"
OUTCOMES = ("passed", "failed", "error", "skipped")
Row = tuple[str, str]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per backend and suite, then the reasons of the skips (pytest hook)."""
    reports = {name: terminalreporter.stats.get(name, []) for name in OUTCOMES}
    lines = list(table_lines(reports))
    if lines:
        terminalreporter.section("conformance")
        for line in lines:
            terminalreporter.line(line)


def table_lines(reports: dict[str, list[pytest.TestReport]]) -> Iterator[str]:
    """Yield the lines of the table; none if no conformance test ran."""
    counts: defaultdict[Row, Counter[str]] = defaultdict(Counter)
    reasons: defaultdict[str, set[str]] = defaultdict(set)
    for outcome, report in each_report(reports):
        row = row_of(report.nodeid)
        if row is not None:
            counts[row][outcome] += 1
            if outcome == "skipped":
                reasons[reason_of(report)].add(" ".join(row))
    if not counts:
        return
    yield "".join(f"{word:<19}" for word in ("backend", "suite", *OUTCOMES)).rstrip()
    for (backend, suite), count in sorted(counts.items()):
        cells = (backend, suite, *(count[outcome] or "-" for outcome in OUTCOMES))
        yield "".join(f"{cell!s:<19}" for cell in cells).rstrip()
    for reason, rows in sorted(reasons.items()):
        yield f"skipped: {', '.join(sorted(rows))}: {reason}"


def each_report(
    reports: dict[str, list[pytest.TestReport]],
) -> Iterable[tuple[str, pytest.TestReport]]:
    """Return every report with its outcome."""
    return ((outcome, report) for outcome in OUTCOMES for report in reports.get(outcome, []))


def row_of(nodeid: str) -> Row | None:
    """Return (backend, suite) of a node id such as `…/test_memory.py::TestIndex::test_x`."""
    path, _, rest = nodeid.partition("::")
    suite, _, test = rest.partition("::")
    if not path.startswith(FOLDER) or not test:
        return None
    backend = path.removeprefix(f"{FOLDER}test_").removesuffix(".py").replace("_", " ")
    return backend, suite.removeprefix("Test").lower()


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    where = report.longrepr
    return str(where[2] if isinstance(where, tuple) else where).removeprefix("Skipped: ")
