"""Tests of the comparison with an earlier commit: a quick run, and how its bars are judged."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.compare import FULL, QUICK, costs_of
from benchmarks.compare_report import (
    KEYED,
    Comparison,
    Costs,
    Pair,
    Spread,
    bars,
    ratio,
    statements_text,
    text,
)
from benchmarks.compare_sides import NoComparison, checkouts
from benchmarks.compare_workload import OPERATIONS
from tests.servers import NO_SERVER, find_binaries

ROOT = Path(__file__).parent.parent.parent


def costs(cpu_us: float, statements: float = 10.0, rows: float | None = 20.0) -> Costs:
    """Return costs; with a server, it used a quarter of the CPU time."""
    server_us = 0.0 if rows is None else cpu_us / 4
    return Costs(cpu_us - server_us, server_us, 2 * cpu_us, statements, rows)


def compared(operation: str, *pairs: Pair, store: str = "postgresql") -> Comparison:
    """Return a comparison without statements."""
    return Comparison(operation, store, list(pairs))


@pytest.mark.extended
@pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clock of another process")
@pytest.mark.skipif(find_binaries() is None, reason=NO_SERVER)
def test_quick_run(tmp_path: Path) -> None:
    # Run it as a separate process, as make does: the script must find its package by itself.
    command = [sys.executable, "benchmarks/compare.py", "--quick", "--statements"]
    run = subprocess.run(
        [*command, "--base", "HEAD", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # A quick run judges nothing: it fails only if it could not measure.
    assert run.returncode == 0, run.stderr
    names = {line.split()[1] for line in run.stdout.splitlines() if line.startswith("bar ")}
    assert names == {
        f"{metric}-{operation}-{store}"
        for operation in OPERATIONS
        for store, metrics in {
            "postgresql": ("cpu", "statements", "rows"),
            "sqlite": ("cpu", "statements"),
        }.items()
        for metric in metrics
    }
    results = json.loads((tmp_path / "compare.json").read_text())
    assert {bar["name"] for bar in results["bars"]} == names
    assert all(len(each["pairs"]) == 1 for each in results["comparisons"])
    assert str(tmp_path) not in json.dumps(results)
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_all_operations_are_measured_in_their_order() -> None:
    assert list(FULL.counts) == list(QUICK.counts) == list(OPERATIONS)


def test_ratio_of_nothing_to_nothing_is_one() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(0, 0) == 1.0
    assert ratio(1, 0) == float("inf")


def test_spread_is_the_median_with_quartiles_and_extremes() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0, 1.0, 5.0)
    assert Spread.of([1.5]) == Spread(1.5, 1.5, 1.5, 1.5, 1.5)
    assert str(Spread.of([1.0, 2.0, 3.0])) == "2.000 [1.500, 2.500] (1.000 to 3.000)"


def test_spread_is_computed_from_the_ratios_of_pairs() -> None:
    # The pairs differ in absolute figures, but in each of them ours takes twice as much.
    found = compared("job", *(Pair(costs(cpu), costs(2 * cpu)) for cpu in (10.0, 50.0, 1_000.0)))
    assert found.spread("cpu") == Spread(2.0, 2.0, 2.0, 2.0, 2.0)
    assert found.medians("cpu") == (50.0, 100.0)


def test_one_bad_pair_is_not_judged() -> None:
    fine, bad = Pair(costs(100.0), costs(101.0)), Pair(costs(100.0), costs(300.0))
    assert bars([compared("job", fine, bad, fine)])[0].is_met
    assert not bars([compared("job", fine, bad, bad)])[0].is_met


def test_bars_of_a_store_with_a_server_and_of_one_without() -> None:
    served = compared("create", Pair(costs(100.0), costs(105.0, rows=20.2)))
    alone = compared("create", Pair(costs(100.0, rows=None), costs(90.0, 11.0, None)), store="file")
    assert [str(bar) for bar in bars([served, alone])] == [
        "bar cpu-create-postgresql 1.050 <=1.05 ok",
        "bar statements-create-postgresql 1.000 <=1 ok",
        "bar rows-create-postgresql 1.010 <=1.01 ok",
        "bar cpu-create-file 0.900 <=1.05 ok",
        "bar statements-create-file 1.100 <=1 short",
    ]
    report = text({"base": "abc"}, [served, alone])
    assert "create, file" in report
    assert "100 µs" in report


@pytest.mark.parametrize(("operation", "is_met"), [(KEYED, True), ("enqueue", False)])
def test_only_a_keyed_enqueue_may_take_a_tenth_more(operation: str, is_met: bool) -> None:
    slower = compared(operation, Pair(costs(100.0), costs(110.0)))
    assert bars([slower])[0].is_met is is_met


def test_costs_are_per_operation_over_all_rounds() -> None:
    timed = {"client_ns": 8_000_000, "server_ns": 4_000_000, "wall_ns": 40_000_000}
    counts = {"statements": {"SELECT 1": 20, "COMMIT": 10}, "rows": 50}
    assert costs_of(timed, counts, count=10, turns=4) == Costs(200.0, 100.0, 1_000.0, 3.0, 5.0)
    assert costs_of(timed, counts | {"rows": None}, count=10, turns=4).rows is None


def test_statements_that_differ_are_named_with_how_often_they_are_sent() -> None:
    found = compared("job", Pair(costs(1.0), costs(1.0)))
    found.counted = 2
    found.texts = {
        "base": Counter({"SELECT a": 4, "COMMIT": 2}),
        "ours": Counter({"SELECT a": 2, "SELECT b": 1, "COMMIT": 2}),
    }
    assert statements_text([found]).splitlines() == [
        "job, postgresql: per operation, base and ours",
        "     2.000    1.000  SELECT a",
        "     0.000    0.500  SELECT b",
    ]
    found.texts["ours"] = found.texts["base"]
    assert statements_text([found]) == "job, postgresql: the same statements"


def test_a_base_that_git_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoComparison, match="git rev-parse"):
        checkouts("no-such-commit", tmp_path)
