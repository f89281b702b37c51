"""A quick run of the dispatch benchmark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import NO_SERVER, find_binaries

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.extended
@pytest.mark.skipif(find_binaries() is None, reason=NO_SERVER)
def test_quick_run(tmp_path: Path) -> None:
    # Run it as a separate process, as make does: the script must find its package by itself.
    run = subprocess.run(
        [sys.executable, "benchmarks/dispatch.py", "--quick", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # A small run may miss a bar; the test only checks that it was measured.
    assert run.returncode in (0, 1), run.stderr
    bars = [line.split() for line in run.stdout.splitlines() if line.startswith("bar ")]
    assert [bar[1] for bar in bars] == ["tick-vs-httpx-loop"], run.stderr
    results = json.loads((tmp_path / "dispatch.json").read_text())
    assert set(results["posts_per_s"]) == {"duly tick", "httpx loop", "httpx, 50 at once"}
    assert str(tmp_path) not in json.dumps(results)
    assert (tmp_path / "dispatch.png").read_bytes().startswith(b"\x89PNG")
