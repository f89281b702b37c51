"""Tests of the index benchmark: a quick run, and how its bars are judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.index_claims import Rates
from benchmarks.index_ticks import Ticks
from benchmarks.report import Bar
from tests.servers import NO_SERVER, find_binaries

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.extended
@pytest.mark.skipif(find_binaries() is None, reason=NO_SERVER)
def test_quick_run(tmp_path: Path) -> None:
    # Run it as a separate process, as make does: the script must find its package by itself.
    run = subprocess.run(
        [sys.executable, "benchmarks/index.py", "--quick", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # A small run may miss a bar; the test only checks that it was measured.
    assert run.returncode in (0, 1), run.stderr
    bars = [line.split() for line in run.stdout.splitlines() if line.startswith("bar ")]
    assert [bar[1] for bar in bars] == [
        "postgresql-claim-vs-bare",
        "postgresql-vs-apscheduler",
        "sqlite-vs-apscheduler",
        "tick-2k-vs-1k",
    ], run.stderr
    assert run.returncode == (0 if all(bar[-1] == "ok" for bar in bars) else 1)
    assert "fsync=on synchronous_commit=on full_page_writes=on" in run.stdout
    assert "journal_mode=WAL synchronous=FULL" in run.stdout
    results = json.loads((tmp_path / "index.json").read_text())
    assert [each["database"] for each in results["databases"]] == ["PostgreSQL", "SQLite"]
    assert str(tmp_path) not in json.dumps(results)
    assert (tmp_path / "index.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("bar", "line"),
    [
        (Bar("claim", 0.709, 0.7, places=2), "bar claim 0.70 0.7 ok"),
        (Bar("claim", 0.699, 0.7, places=2), "bar claim 0.69 0.7 short"),
        (Bar("peer", 29.99, 30), "bar peer 29.9 30 short"),
        (Bar("peer", 1.1, 1.1), "bar peer 1.1 1.1 ok"),
        (Bar("tick", 1.494, 1.5, at_most=True, places=2), "bar tick 1.50 <=1.5 ok"),
        (Bar("tick", 1.501, 1.5, at_most=True, places=2), "bar tick 1.51 <=1.5 short"),
        (Bar("tick", 1.1, 1.1, at_most=True), "bar tick 1.1 <=1.1 ok"),
    ],
)
def test_bars_are_rounded_to_the_stricter_side(bar: Bar, line: str) -> None:
    assert str(bar) == line
    assert bar.to_json()["ok"] == line.endswith("ok")


def test_rates_are_compared_round_by_round() -> None:
    ours, theirs = Rates((100.0, 50.0, 10.0)), Rates((200.0, 50.0, 40.0))
    assert (ours.median, ours.best) == (50.0, 100.0)
    assert ours.ratio(theirs) == 0.5


def test_ticks_are_compared_tick_by_tick() -> None:
    ticks = Ticks({1_000: (1.0, 2.0, 4.0), 10: (1.0, 1.0, 1.0)})
    assert ticks.median(1_000) == 2.0
    assert ticks.growth() == 2.0
