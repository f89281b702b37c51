"""Tests that seeds pass and are reproducible; `make sim` runs many more."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from duly.testing.simulation import Verdict, simulate
from duly.testing.simulation.record import Violation
from duly.testing.simulation.world import Scene, run
from tests.simulation.__main__ import table

ROOT = Path(__file__).parent.parent.parent
SEEDS, TOGETHER = 40, 8


@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_every_promise_is_kept(first: int) -> None:
    judged = [simulate(seed) for seed in range(first, first + TOGETHER)]
    assert all(each.is_good for each in judged), "\n".join(each.told() for each in judged)
    assert sum(each.occurrences for each in judged) > 50, "too few occurrences"
    assert sum(each.faults.total() for each in judged) > 50, "too few faults"


def test_the_same_seed_gives_the_same_trace() -> None:
    one, other = run(11).record, run(11).record
    assert one.lines == other.lines
    assert run(12).record.digest() != one.digest()


def test_another_process_gives_the_same_trace() -> None:
    """The hash seed of Python differs between processes and must not affect the trace."""
    script = "from duly.testing.simulation import simulate; print(simulate(11).digest)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == simulate(11).digest


def test_verdict_lists_violations_and_the_replay_command() -> None:
    broken = Violation("uncovered", "sch_1", "1774745852257 has no row")
    verdict = Verdict(7, "00ff", (broken,), 1, 1, 1, 0, trace=("1774745852000 node-1 starts",))
    assert verdict.told().splitlines() == [
        "seed 7: 1 violations, trace 00ff",
        "  uncovered: sch_1 1774745852257 has no row",
        "    1774745852000 node-1 starts",
        "replay: make sim SEEDS=1 ARGS='--first 7'",
    ]
    assert not verdict.is_good
    assert "failed seeds  1" in table([verdict], 2.0)


def test_make_sim_counts_what_it_did() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "2", "--processes", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.startswith("2 seeds in ")
    assert "failed seeds  0" in done.stdout


def test_scenes_differ() -> None:
    scenes = [Scene.drawn(random.Random(seed)) for seed in range(60)]
    assert {scene.nodes for scene in scenes} == {1, 2, 3}
    for kind in ("refused", "lost", "killed", "stalled", "hints_lost", "skew_s"):
        assert len({getattr(scene.faults, kind) > 0 for scene in scenes}) == 2, kind
    for kind in ("cut_every_s", "death_every_s", "freeze_every_s", "losses_every_s"):
        assert len({getattr(scene.faults, kind) is None for scene in scenes}) == 2, kind
