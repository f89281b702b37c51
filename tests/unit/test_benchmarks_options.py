"""Tests of the command line of benchmarks: output files, and waiting for an idle machine."""

import json
from pathlib import Path

import pytest
from benchmarks.options import (
    MAX_LOAD,
    POLL_S,
    QUICK_RESULTS,
    WAIT_S,
    Busy,
    Options,
    parse,
    wait_until_quiet,
)
from benchmarks.report import write_results


def test_waits_until_the_load_has_fallen() -> None:
    loads, waits = iter([4.0, 2.0, MAX_LOAD]), list[float]()
    assert wait_until_quiet(lambda: next(loads), waits.append) == MAX_LOAD
    assert waits == [POLL_S, POLL_S]


def test_refuses_a_machine_that_stays_busy() -> None:
    waits = list[float]()
    with pytest.raises(Busy, match=r"load average is 12\.0, above 1\.5"):
        wait_until_quiet(lambda: 12.0, waits.append)
    assert sum(waits) >= WAIT_S


def test_a_full_run_on_a_busy_machine_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy() -> float:
        raise Busy("load average is 12.0")

    monkeypatch.setattr("benchmarks.options.wait_until_quiet", busy)
    with pytest.raises(SystemExit) as stopped:
        parse("jobs", None, [])
    assert stopped.value.code == 2
    assert "benchmark: load average is 12.0" in capsys.readouterr().err


def test_a_quick_run_does_not_replace_recorded_results() -> None:
    assert parse("jobs", None, ["--quick", "--no-peers"]).out == QUICK_RESULTS


def test_the_load_is_stored_with_the_results(tmp_path: Path) -> None:
    options = Options(quick=False, with_peers=True, out=tmp_path / "new", load=0.71)
    write_results(options, "jobs", {"benchmark": "jobs", "rate": 1.23456})
    stored = json.loads((tmp_path / "new" / "jobs.json").read_text())
    assert stored == {"benchmark": "jobs", "rate": 1.2346, "load_at_start": 0.71}
