"""Tests that every example runs and prints its expected.txt."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/expected.txt"))


def run(folder: Path, *arguments: str) -> str:
    script = folder / f"{folder.name}.py"
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    assert sorted(path for path in ROOT.glob("examples/*") if path.is_dir()) == EXAMPLES


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_example_prints_its_expected_output(folder: Path) -> None:
    assert run(folder) == (folder / "expected.txt").read_text()


def test_digests_are_the_same_on_every_store(postgres_url: str) -> None:
    folder = ROOT / "examples" / "digests"
    expected = (folder / "expected.txt").read_text()
    assert [run(folder, url) for url in ("memory:", postgres_url)] == [expected] * 2


def test_jobs_are_the_same_on_postgresql(postgres_url: str) -> None:
    folder = ROOT / "examples" / "jobs"
    assert run(folder, postgres_url) == (folder / "expected.txt").read_text()


def test_reminders_are_the_same_on_every_store(postgres_url: str) -> None:
    folder = ROOT / "examples" / "reminders"
    expected = (folder / "expected.txt").read_text()
    assert [run(folder, url) for url in ("memory:", postgres_url)] == [expected] * 2
