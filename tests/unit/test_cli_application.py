"""Tests of `duly run` with a faulty module: the message names the fault, the place and the fix."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from duly.cli import main

GOOD = """
from duly import Duly, Flow
flow = Flow("sample")
app = Duly("memory:", flows=[flow])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Yield the working directory of the command, and unload the modules imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def run(folder: Path, text: str, name: str, *words: str) -> Result:
    (folder / "sample_app.py").write_text(text)
    return CliRunner().invoke(main, ["run", name, *words])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sample_app:nope", "'nope' in sample_app is not a Duly object; try sample_app:app"),
        ("sample_app:flow", "'flow' in sample_app is not a Duly object; try sample_app:app"),
        ("sample_app.py:app", "'sample_app.py' is a file; name the module: sample_app:app"),
        ("./web/jobs.py:app", "'./web/jobs.py' is a file; name the module: web.jobs:app"),
        ("none:app", "there is no module 'none' here or installed"),
        ("sample_app.none:app", "there is no module 'sample_app.none' here or installed"),
        ("sample_app", "'sample_app'; write it as module:name, as in reminders:app"),
    ],
)
def test_wrong_name_is_reported_with_a_suggestion(folder: Path, name: str, message: str) -> None:
    result = run(folder, GOOD, name)
    assert result.exit_code == 2
    assert f"Error: {message}\n" in result.stderr


def test_module_without_an_application(folder: Path) -> None:
    result = run(folder, "x = 1\n", "sample_app:app")
    assert "'app' in sample_app is not a Duly object; the module has none" in result.stderr


@pytest.mark.parametrize(
    ("text", "line", "error", "code"),
    [
        ("x = 1\ny = x / 0\n", 2, "ZeroDivisionError: division by zero", 1),
        ("import nothing_of_that_name\n", 1, "ModuleNotFoundError: No module named", 1),
        ("app = Duly(\n", 1, "SyntaxError: '(' was never closed", 1),
        ("from duly import cron\ncron('0 9 * * MOM')\n", 2, "InvalidTrigger: day of week", 2),
    ],
)
def test_error_in_a_module_is_reported_with_its_line(
    folder: Path, text: str, line: int, error: str, code: int
) -> None:
    result = run(folder, text, "sample_app:app")
    assert result.exit_code == code
    assert f'sample_app.py", line {line}' in result.stderr
    assert error in result.stderr
    assert result.stderr.endswith("error: module 'sample_app' cannot be imported\n")
    assert "click/core.py" not in result.stderr
    assert "importlib" not in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "99999"], "'--port': 99999 is not in the range 0<=x<=65535"),
        (["--slots", "0"], "slots is 0; allowed: 1 to 1000"),
        (["--lease", "-1"], "lease_s is -1.0; allowed: more than 0"),
    ],
)
def test_bad_option_is_refused_before_anything_starts(
    folder: Path, words: list[str], message: str
) -> None:
    result = run(folder, GOOD, "sample_app:app", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "duly: " not in result.stderr
