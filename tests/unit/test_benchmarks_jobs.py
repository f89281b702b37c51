"""Tests of the job benchmark: a quick run without peers, which need a network, and its bars."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.jobs import Pairing
from benchmarks.jobs_peers import PeerResult
from benchmarks.jobs_pressure import (
    CONDITIONS,
    OVERTAKEN_AT_MOST,
    Pressure,
    Run,
    most_overtaken,
    pressure_bars,
)
from tests.servers import NO_SERVER, find_binaries

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.extended
@pytest.mark.skipif(find_binaries() is None, reason=NO_SERVER)
def test_quick_run(tmp_path: Path) -> None:
    # Run it as a separate process, as make does: the script must find its package by itself.
    run = subprocess.run(
        [sys.executable, "benchmarks/jobs.py", "--quick", "--no-peers", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    bars = {line.split()[1]: line.split()[-1] for line in run.stdout.splitlines() if "bar " in line}
    measured = {"vs-bare-sql", "bulk-enqueue-vs-bare", "idle-queries-per-second"}
    assert measured | {each.name for each in CONDITIONS} < set(bars), run.stdout
    assert bars["held-snapshot-claim"] == "ok"
    # A bar without a peer is reported as short, not as met.
    assert bars["vs-graphile-worker"] == bars["sqlite-vs-huey"] == "short"
    assert "left out" in run.stdout
    results = json.loads((tmp_path / "jobs.json").read_text())
    assert results["ours"][0]["jobs_per_second"] > 0
    assert (tmp_path / "jobs.png").stat().st_size > 1_000


def test_ratio_is_the_median_of_the_rounds() -> None:
    theirs = PeerResult("other", 10.0, 100, 1, "defaults", None)
    assert Pairing("other", theirs, (10.0, 40.0, 30.0), (10.0, 10.0, 10.0)).ratio == 3
    assert Pairing("other", theirs, (), ()).ratio == 0


def test_pressure_is_the_median_of_the_pairs() -> None:
    rescued, *_ = CONDITIONS
    plain = tuple(Run(rate, 0) for rate in (100.0, 100.0, 100.0))
    under = tuple(Run(rate, 3) for rate in (50.0, 90.0, 95.0))
    assert Pressure(rescued, plain, under).ratio == 0.9


def test_rescued_jobs_that_lose_their_place_are_short() -> None:
    rescued, once, *_ = CONDITIONS
    plain, late = Run(100.0, 0), Run(100.0, OVERTAKEN_AT_MOST + 1)
    assert Pressure(rescued, (plain,), (late,)).ratio == 0
    assert Pressure(once, (plain,), (late,)).ratio == 1
    assert not pressure_bars([Pressure(rescued, (plain,), (late,))])[0].is_met


def test_jobs_that_begin_in_order_count_no_overtaking() -> None:
    assert most_overtaken([0, 1, 2]) == 0
    assert most_overtaken([1, 2, 3, 0, 4]) == 3
