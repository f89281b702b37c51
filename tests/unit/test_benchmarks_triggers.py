"""Tests that the trigger benchmark runs and writes its results; the figures are not judged."""

import json
import re
from pathlib import Path

import pytest
from benchmarks import triggers
from benchmarks.report import Bar

BAR = re.compile(r"bar [a-z-]+ \d+\.\d \d+ (?:ok|short)")


@pytest.mark.extended
def test_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert triggers.main(["--quick", "--out", str(tmp_path)]) in (0, 1)
    printed = capsys.readouterr().out
    bars = [line for line in printed.splitlines() if line.startswith("bar ")]
    assert printed.splitlines()[-len(bars) :] == bars
    assert len(bars) == 11
    assert all(BAR.fullmatch(line) for line in bars)
    assert all(expression in printed for expression in triggers.EXPRESSIONS)
    results = json.loads((tmp_path / "triggers.json").read_text())
    assert [bar["name"] for bar in results["bars"]] == [line.split()[1] for line in bars]
    assert str(Path.home()) not in json.dumps(results)
    assert (tmp_path / "triggers.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("measured", "line"),
    [(40.0, "bar x 40.0 40 ok"), (39.99, "bar x 39.9 40 short"), (312.34, "bar x 312.3 40 ok")],
)
def test_the_printed_ratio_decides(measured: float, line: str) -> None:
    assert str(Bar("x", measured, 40)) == line
