"""Tests of the planners benchmark: a quick run, the rows each process claims, and its bars."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.planners import (
    BUCKETS,
    COUNTS,
    LAYOUTS,
    MINUTES,
    ONE_TABLE,
    OWN_PARTITIONS,
    PARTITIONS,
    PARTS,
    PLANNER,
    SHARDS,
    Figures,
    Layout,
    Run,
    bars,
    chart,
    text,
)
from tests.servers import NO_SERVER, find_binaries

ROOT = Path(__file__).parent.parent.parent
DUE_MS = 1_800_000_000_000
RUN = Run(2.0, 0.5, 1.0, passed_over=30, empty_claims=4, duplicates=0)
NAMES = [layout.name for layout in (PLANNER, *LAYOUTS)]


def figures() -> Figures:
    """Return figures of two rounds, in which 4 planners take 1/2 and 1/4 of the time of one."""
    runs = {(name, count): [RUN, RUN] for name in NAMES for count in COUNTS}
    runs[PLANNER.name, 4] = [replace(RUN, seconds=1.0), replace(RUN, seconds=0.5)]
    return Figures(stored=100, burst=40, runs=runs)


@pytest.mark.extended
@pytest.mark.skipif(find_binaries() is None, reason=NO_SERVER)
def test_quick_run(tmp_path: Path) -> None:
    # Run it as a separate process, as make does: the script must find its package by itself.
    run = subprocess.run(
        [sys.executable, "benchmarks/planners.py", "--quick", "--out", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # A small run may not scale; the test only checks that it was measured.
    assert run.returncode in (0, 1), run.stderr
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("bar ")]
    assert [line[1] for line in lines] == ["planner-duplicates", "planners-scale"], run.stderr
    assert lines[0][-1] == "ok"
    assert run.returncode == (0 if all(line[-1] == "ok" for line in lines) else 1)
    results = json.loads((tmp_path / "planners.json").read_text())
    rows = results["tables"][0]["rows"]
    measured = {(row["layout"], row["processes"]) for row in rows}
    assert measured == {(name, count) for name in NAMES for count in COUNTS}
    assert all(row["per_s"] > 0 and row["duplicates"] == 0 for row in rows)
    # A process that owns its part finds no rows locked by another one.
    owned = {SHARDS.name, OWN_PARTITIONS.name}
    assert {row["passed_over"] for row in rows if row["layout"] in owned} == {0}
    assert str(tmp_path) not in json.dumps(results)
    assert (tmp_path / "planners.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("layout", [SHARDS, OWN_PARTITIONS], ids=lambda layout: layout.name)
@pytest.mark.parametrize("count", COUNTS)
def test_every_part_has_one_owner(layout: Layout, count: int) -> None:
    claims = [claim for number in range(count) for claim in layout.claims(number, count, DUE_MS)]
    assert len(claims) == len(set(claims)) == PARTS


def test_second_of_four_claims_two_parts() -> None:
    for layout, named in ((SHARDS, "shard = {} AND "), (OWN_PARTITIONS, "bench_partitions_{} ")):
        first, second = layout.claims(1, 4, DUE_MS)
        assert named.format(1) in first
        assert named.format(5) in second


@pytest.mark.parametrize("layout", [ONE_TABLE, PARTITIONS], ids=lambda layout: layout.name)
def test_processes_that_share_a_table_claim_the_same_way(layout: Layout) -> None:
    assert len({layout.claims(number, 8, DUE_MS) for number in range(8)}) == 1
    (claim,) = layout.claims(7, 8, DUE_MS)
    assert f"FROM {layout.table} WHERE hand_over" in claim
    assert "ORDER BY run_at_ms, priority DESC, row_id" in claim


def test_all_processes_claim_buckets_from_the_oldest() -> None:
    claims = BUCKETS.claims(0, 8, DUE_MS)
    assert claims == BUCKETS.claims(7, 8, DUE_MS)
    last = DUE_MS // 60_000
    for minute, claim in zip(range(last - MINUTES + 1, last + 1), claims, strict=True):
        assert f"bucket = {minute} AND " in claim


def test_scale_is_the_median_of_pairs() -> None:
    assert [str(bar) for bar in bars([figures()])] == [
        "bar planner-duplicates 0.0 <=0 ok",
        "bar planners-scale 3.00 1.2 ok",
    ]


def test_a_duplicate_in_any_layout_fails_the_bar() -> None:
    doubled = figures()
    doubled.runs[PLANNER.name, 8] = [RUN, replace(RUN, duplicates=1)]
    assert [bar.is_met for bar in bars([figures(), doubled])] == [False, True]


def test_planners_that_slow_each_other_miss_the_bar() -> None:
    slow = figures()
    slow.runs[PLANNER.name, 4] = [replace(RUN, seconds=3.0)] * 2
    assert [bar.is_met for bar in bars([slow])] == [True, False]


def test_text_gives_rates_ratios_and_cpu_time_of_a_row() -> None:
    report = text(figures())
    cells = {tuple(line.split()[:3]): line.split()[3:] for line in report.splitlines()}
    cpu_us = ["12,500.00", "25,000.00"]
    assert cells["Duly's", "planner", "4"] == ["60.00", "3.00", "3.00", *cpu_us, "30.00", "4", "0"]
    assert "shards-gain own shards: 1.00, 1.00, 1.00, 1.00" in report


def test_chart_has_every_layout_at_every_number_of_processes() -> None:
    drawn = chart(figures())
    assert list(drawn.groups) == ["1", "2", "4", "8"]
    assert all(list(group) == NAMES for group in drawn.groups.values())
