"""Tests of README.md: each command is run, or is listed here with the reason why not.

test_documents.py runs its Python and its `duly` and `python` commands in an empty folder. This
file runs the commands that need the repository.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import SHELL_LANGUAGES, blocks, commands
from tests.docs.running import RUN

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LINES_MAX = 200
RUN_HERE = {"make demo": "/readyz answers 200; everything is stopped now"}
"""By command, a line of its output on success."""
NOT_RUN = {
    "git clone <this repository> && cd duly": "the place is the reader's, and this is a clone",
    "make test": "it runs this test",
}


def shown() -> list[str]:
    """Return the commands of all shell blocks of the page."""
    return [
        command.text
        for block in blocks(README.read_text())
        if block.language in SHELL_LANGUAGES
        for command in commands(block)
    ]


def test_every_command_is_run_or_listed() -> None:
    found = shown()
    assert len(found) > 5
    elsewhere = [text for text in found if not text.startswith(RUN)]
    assert sorted(elsewhere) == sorted([*RUN_HERE, *NOT_RUN])


def test_no_block_is_left_out() -> None:
    assert [block.line for block in blocks(README.read_text()) if block.not_run] == []


@pytest.mark.parametrize("command", RUN_HERE)
def test_commands_of_the_repository(command: str) -> None:
    done = subprocess.run(
        # Use the environment of this test in place of the one that `make setup` would create.
        [*command.split(), "--assume-old=.venv/.installed", f"BIN={Path(sys.executable).parent}"],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert RUN_HERE[command] in done.stdout


def test_it_stays_short() -> None:
    assert len(README.read_text().splitlines()) <= LINES_MAX
