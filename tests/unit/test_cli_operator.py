"""Tests of `duly operator hash`, which turns a hidden password into a line for a setting."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from duly.cli import main
from duly.settings import Settings
from duly.web.operators.accounts import find_operator, parse_operators

DULY = str(Path(sys.executable).with_name("duly"))
PASSWORD = "correct horse battery"  # noqa: S105


def hashed(*words: str, typed_in: str = PASSWORD) -> Result:
    return CliRunner().invoke(main, ["operator", "hash", *words], input=typed_in)


@pytest.mark.parametrize("typed_in", [PASSWORD, f"{PASSWORD}\n", f"{PASSWORD}\r\nmore\n"])
def test_the_printed_line_allows_signing_in(typed_in: str) -> None:
    result = hashed("ada", "--role", "viewer", typed_in=typed_in)
    assert (result.exit_code, result.stderr) == (0, "")
    name, _, value = result.stdout.strip().partition("=")
    found = parse_operators(Settings.from_environment({name: value}).operators)
    ada = find_operator(found, "ada", PASSWORD)
    assert ada is not None
    assert (ada.role, ada.may_act) == ("viewer", False)
    assert find_operator(found, "ada", "correct horse") is None


def test_an_operator_may_act_by_default() -> None:
    (ada,) = parse_operators(hashed("ada").stdout.strip().partition("=")[2])
    assert ada.may_act


@pytest.mark.parametrize(
    ("words", "typed_in", "message"),
    [
        (("ada",), "", "the password is empty"),
        (("ada",), "\n", "the password is empty"),
        (("ada",), "seven77", "8 to 1024"),
        (("a,b",), PASSWORD, "neither a comma nor a colon"),
        (("a:b",), PASSWORD, "neither a comma nor a colon"),
        (("",), PASSWORD, "operator"),
        (("ada", "--role", "root"), PASSWORD, "viewer"),
        ((), PASSWORD, "NAME"),
    ],
)
def test_unusable_names_and_passwords_are_refused(
    words: tuple[str, ...], typed_in: str, message: str
) -> None:
    result = hashed(*words, typed_in=typed_in)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def typed(*answers: str) -> tuple[int, str, str]:
    """Run the command at a terminal. Return its exit code, its output, and the screen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [DULY, "operator", "hash", "ada"],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    for answer in answers:
        # The prompt ends with a space when echo is off; input sent before that is discarded.
        while not screen.endswith(b": "):
            screen += os.read(ours, 1_000)
        os.write(ours, f"{answer}\n".encode())
        screen += b"|"
    printed, _ = process.communicate(timeout=30)
    with suppress(OSError):  # the other side is closed
        while more := os.read(ours, 1_000):
            screen += more
    os.close(ours)
    return process.returncode, printed, screen.decode()


def test_a_typed_password_is_not_echoed() -> None:
    code, printed, screen = typed(PASSWORD, PASSWORD)
    assert code == 0
    assert find_operator(parse_operators(printed.strip().partition("=")[2]), "ada", PASSWORD)
    assert "Password" in screen
    assert "horse" not in screen + printed


def test_a_mistyped_password_is_asked_for_again() -> None:
    code, printed, screen = typed(PASSWORD, "correct house", PASSWORD, PASSWORD)
    assert code == 0
    assert "do not match" in screen
    assert find_operator(parse_operators(printed.strip().partition("=")[2]), "ada", PASSWORD)
