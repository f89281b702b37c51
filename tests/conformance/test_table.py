"""The table of conformance results: its counts and the reasons of skips."""

from types import SimpleNamespace
from typing import Any

from tests.conformance.table import row_of, table_lines

MEMORY = "tests/conformance/test_memory.py::TestIndex::test_"


def a_report(nodeid: str, longrepr: Any = None) -> Any:
    return SimpleNamespace(nodeid=nodeid, longrepr=longrepr)


def test_rows_are_backends_and_suites() -> None:
    assert row_of(f"{MEMORY}a[1]") == ("memory", "index")
    path = "tests/conformance/test_memory_optimistic.py::TestIndex::test_a"
    assert row_of(path) == ("memory optimistic", "index")
    assert row_of("tests/test_docs.py::test_a") is None
    assert row_of("tests/conformance/test_table.py::test_a") is None


def test_table_counts_and_gives_reasons() -> None:
    skipped = a_report(
        "tests/conformance/test_memory.py::TestProcesses::test_a",
        ("processes.py", 3, "Skipped: one process only"),
    )
    lines = table_lines(
        {
            "passed": [a_report(f"{MEMORY}{n}") for n in range(3)],
            "failed": [a_report(f"{MEMORY}x")],
            "skipped": [skipped],
        }
    )
    assert [line.split() for line in lines] == [
        ["backend", "suite", "passed", "failed", "error", "skipped"],
        ["memory", "index", "3", "1", "-", "-"],
        ["memory", "processes", "-", "-", "-", "1"],
        ["skipped:", "memory", "processes:", "one", "process", "only"],
    ]


def test_no_conformance_no_table() -> None:
    assert list(table_lines({"passed": [a_report("tests/test_docs.py::test_a")]})) == []
