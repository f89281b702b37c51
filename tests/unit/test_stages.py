"""Tests of the stages of `make test-all`: counting, failures, and discovery of tools."""

import os
import stat
import sys
from pathlib import Path

import pytest
from tests.missing import missing_tool
from tests.stages import __main__ as program
from tests.stages import interpreters
from tests.stages.catalogue import MARKED, ROOT, Command, Stage, all_stages, marked_stages
from tests.stages.interpreters import Interpreter, find_interpreter, own_version
from tests.stages.running import Counts, pytest_counts, run_command, run_stage

LIMIT_S = 60.0


def script(text: str) -> Command:
    return Command(("-c", text))


@pytest.mark.parametrize(
    ("closing", "counts"),
    [
        ("12 passed in 0.03s", Counts(12, 0, 0)),
        ("1 failed, 8074 passed, 34 skipped in 396.00s (0:06:35)", Counts(8074, 1, 34)),
        ("3 passed, 2 deselected, 1 error in 1.20s", Counts(3, 1, 0)),
        ("2 errors in 1.20s", Counts(0, 2, 0)),
        ("no tests ran in 0.01s", Counts()),
        ("5 deselected in 0.01s", Counts()),
    ],
)
def test_the_closing_line_is_counted(closing: str, counts: Counts) -> None:
    assert pytest_counts(["....", "SKIPPED [9] 9 passed", closing]) == counts


def test_output_of_tests_is_not_counted() -> None:
    assert pytest_counts(["it printed 7 passed in 1.0s", "2 passed in 0.1s"]) == Counts(2)


@pytest.mark.parametrize(
    ("command", "counts", "fault"),
    [
        (script("print('skipped: no server')"), Counts(1, 0, 1), ""),
        (script("raise SystemExit(3)"), Counts(0, 1), "status 3"),
        (Command(("-m", "pytest", "-q", "--co", "tests/test_servers.py")), Counts(), "nothing ran"),
    ],
)
def test_a_command_is_counted(command: Command, counts: Counts, fault: str) -> None:
    counted, found = run_command(sys.executable, command, LIMIT_S)
    assert counted == counts
    assert found.endswith(fault)


def test_a_command_that_hangs_is_killed() -> None:
    counts, fault = run_command(sys.executable, script("import threading as t;t.Event().wait()"), 1)
    assert counts == Counts(failed=1)
    assert "killed after 1 s" in fault


def test_an_environment_that_cannot_be_made_fails_the_stage() -> None:
    false = Interpreter("3.99", "/bin/false")
    outcome = run_stage(Stage("other", "", (script(""),), interpreter=false))
    assert (outcome.counts.failed, outcome.fault[:15]) == (1, "no environment:")


def test_stages_after_a_failure_still_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [Stage("first", "", (script("raise SystemExit(1)"),)), Stage("last", "", (script(""),))]
    monkeypatch.setattr(program, "all_stages", lambda _: made)
    monkeypatch.setattr(program, "install_packages", lambda: None)
    monkeypatch.setattr(program, "other_interpreters", list)
    monkeypatch.setattr(sys, "argv", ["stages"])
    assert program.main() == 1
    *_, first, last, failed, closing = capsys.readouterr().out.splitlines()
    assert first.split()[:4] == ["first", "0", "1", "0"]
    assert last.split()[:4] == ["last", "1", "0", "0"]
    assert failed.startswith("failed: first: ")
    assert closing.startswith("1 failed, 1 passed in ")
    monkeypatch.setattr(sys, "argv", ["stages", "last"])
    assert program.main() == 0
    monkeypatch.setattr(sys, "argv", ["stages", "none"])
    with pytest.raises(SystemExit):
        program.main()
    assert "stages: first, last" in capsys.readouterr().err


def test_marked_stages_share_no_test_and_name_no_path_that_is_gone() -> None:
    paths = [path for _, each in MARKED.values() for path in each]
    assert len(paths) == len(set(paths))
    assert [path for path in paths if not (ROOT / path).exists()] == []
    rest = marked_stages()[-1].commands[0].arguments
    assert {each.removeprefix("--ignore=") for each in rest if "--ignore=" in each} == set(paths)


def test_every_interpreter_has_a_stage() -> None:
    stages = all_stages([Interpreter("3.12", "a"), Interpreter("3.13", "b")])
    names = [stage.name for stage in stages]
    assert len(names) == len(set(names))
    assert {"python3.12", "python3.13"} < set(names)


def test_an_interpreter_that_does_not_start_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pyenv shim for a version that is not active is such a program."""
    name = f"python{own_version()}"
    for folder, text in (("shims", "exit 127"), ("real", f'exec "{sys.executable}" "$@"')):
        program_file = tmp_path / folder / name
        program_file.parent.mkdir()
        program_file.write_text(f"#!/bin/sh\n{text}\n")
        program_file.chmod(program_file.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join(str(tmp_path / folder) for folder in ("gone", "shims", "real"))
    monkeypatch.setenv("PATH", path)
    found = find_interpreter(own_version())
    assert found == Interpreter(own_version(), str(tmp_path / "real" / name))
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    assert find_interpreter(own_version()) is None
    assert interpreters.version_of(str(tmp_path / "gone" / name)) is None


def test_a_missing_tool_fails_in_ci_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no such tool"):
        missing_tool("no such tool")
    monkeypatch.delenv("CI")
    with pytest.raises(BaseException, match="no such tool") as skipped:
        missing_tool("no such tool")
    assert skipped.typename == "Skipped"
