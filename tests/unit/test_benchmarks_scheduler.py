"""Tests of the scheduler benchmark: a quick run without peers (no network), and its bars."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.report import part_of
from benchmarks.scheduler import FULL
from benchmarks.scheduler_app import JOURNAL
from benchmarks.scheduler_burst import Burst
from benchmarks.scheduler_mix import WINDOW_S, Mix, Share, definitions
from benchmarks.scheduler_peers import Fired, left_out
from benchmarks.scheduler_rare import Rare
from benchmarks.scheduler_report import Figures, bars, text
from benchmarks.scheduler_sizes import Stored
from benchmarks.scheduler_snapshot import HeldPlan
from benchmarks.scheduler_steady import Lateness
from tests.servers import NO_SERVER, find_binaries

ROOT = Path(__file__).parent.parent.parent
LATE = Lateness(100, 10.0, 200.0, 5, 210.0, 50, 160.0, 50.0)
FIGURES = Figures(
    facts={"python": "3"},
    burst=Burst(100, [60.0, 70.0, 90.0], [100.0, 100.0, 100.0]),
    stored=[
        Stored("PostgreSQL", 10, 1.0, 1.0, LATE),
        Stored("PostgreSQL", 20, 1.0, 1.0, replace(LATE, p99_ms=240.0)),
        Stored("SQLite", 10, 1.0, 1.0, replace(LATE, p99_ms=900.0, plain_p99_ms=590.0)),
    ],
    mix=Mix(10, 1, 9, 3, 3, 1, 10, 10, 1.0, 2.0, 0.5, 0.1),
    peers=left_out([50]),
    rare=Rare(10, [4.0, 5.0, 90.0], [5.0, 6.0, 7.0], [1.0, 1.0, 1.0], [1.0, 1.5, 9.0]),
    held=HeldPlan(1_000, 200, 20, 24, 30),
)


@pytest.mark.extended
@pytest.mark.skipif(find_binaries() is None, reason=NO_SERVER)
def test_quick_run(tmp_path: Path) -> None:
    # Run it as a separate process, as make does: the script must find its package by itself.
    run = subprocess.run(
        [sys.executable, "benchmarks/scheduler.py", "--quick", "--no-peers", "--out", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # A small run may miss a bar; the test only checks that it was measured.
    assert run.returncode in (0, 1), run.stderr
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("bar ")]
    assert [line[1] for line in lines] == [
        "burst-vs-bare",
        "lateness-vs-plain-jobs-postgresql",
        "lateness-vs-plain-jobs-sqlite",
        "duplicate-jobs",
        "rare-flow-step",
        "held-snapshot-plan",
    ], run.stderr
    assert lines[3][-1] == lines[5][-1] == "ok"
    assert run.returncode == (0 if all(line[-1] == "ok" for line in lines) else 1)
    results = json.loads((tmp_path / "scheduler.json").read_text())
    assert [each["database"] for each in results["stored"]] == ["PostgreSQL", "SQLite"]
    assert all(each["lateness"]["jobs"] > 0 for each in results["stored"])
    assert len(results["rare"]["rare_ms"]) == len(results["rare"]["own_ms"]) > 0
    assert results["mix"]["statements"] >= results["mix"]["statements_without"] > 0
    assert str(tmp_path) not in json.dumps(results)
    assert (tmp_path / "scheduler.png").read_bytes().startswith(b"\x89PNG")


def test_bars_use_the_median_of_pairs_and_the_worst_lateness_ratio() -> None:
    assert [str(bar) for bar in bars(FIGURES)] == [
        "bar burst-vs-bare 0.70 0.6 ok",
        "bar lateness-vs-plain-jobs-postgresql 1.50 <=1.5 ok",
        "bar lateness-vs-plain-jobs-sqlite 1.53 <=1.5 short",
        "bar duplicate-jobs 0.0 <=0 ok",
        "bar rare-flow-step 1.50 <=2 ok",
        "bar held-snapshot-plan 1.50 <=2 ok",
    ]


def test_the_rare_flow_is_judged_by_the_worse_of_busy_and_idle_steps() -> None:
    slow = replace(FIGURES.rare, rare_idle_ms=[9.0, 400.0, 401.0])
    assert slow.ratio == 400.0
    assert [bar.is_met for bar in bars(replace(FIGURES, rare=slow))][4] is False


def test_a_single_duplicate_fails_the_bar() -> None:
    doubled = replace(FIGURES, mix=replace(FIGURES.mix, jobs=11))
    assert [bar.is_met for bar in bars(doubled)] == [True, True, False, False, True, True]


def test_an_absent_peer_is_not_available_and_misses_no_bar() -> None:
    assert "left out" in text(FIGURES)
    assert Fired("other", 10, None, None, "no network").per_second is None
    assert Fired("other", 10, 5, 2.0).per_second == 2.5
    assert [bar.is_met for bar in bars(FIGURES)] == [True, True, False, True, True, True]


def test_report_has_the_expectation_beside_each_figure() -> None:
    report = text(FIGURES)
    assert "0.50 queries/s (document 003 claims 8.5)" in report
    assert "p50 1.0 ms, p99 2.0 ms (document 003 claims 1)" in report


def test_parts() -> None:
    assert part_of([float(number) for number in range(100)], 0.99) == 99.0
    assert part_of([3.0, 1.0, 2.0], 0.5) == 2.0
    assert part_of([], 0.99) == 0.0


def test_the_full_mix_has_41_due_in_two_minutes() -> None:
    assert Share(1_000, 5_000, 4_000) == FULL.mix
    assert round(FULL.mix.due_in(WINDOW_S)) == 41
    assert FULL.mix.due_in(10) == pytest.approx(3.4, abs=0.05)


def test_the_mix_is_the_same_each_time() -> None:
    asked = Share(2, 3, 4)
    assert definitions(asked) == definitions(asked)
    assert len(definitions(asked)) == asked.total == 9


def test_journal_is_complete_and_closed_at_the_end(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    note = (
        "import asyncio, types\n"
        "from benchmarks.scheduler_app import note\n"
        "asyncio.run(note(types.SimpleNamespace(job_id='job_1')))\n"
    )
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", note],
        cwd=ROOT,
        env=os.environ | {JOURNAL: str(journal)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ResourceWarning" not in run.stderr
    assert journal.read_text().startswith("job_1 ")
