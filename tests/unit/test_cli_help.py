"""Tests of the help of every command: purpose, options, and examples."""

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tools.reference.commands import commands

from duly.cli import main

COMMANDS = {" ".join(path): command for path, command in commands()}


def examples(text: str) -> list[str]:
    """Return the lines under `Examples:` up to the next empty line."""
    after = text.partition("Examples:\n")[2].split("\n\n", 1)[0]
    return [line.strip() for line in after.splitlines()]


def test_commands_import_no_server_and_no_client() -> None:
    """These imports are slow, and most commands need neither."""
    heavy = {"aiohttp", "jinja2", "sqlalchemy", "starlette", "uvicorn"}
    script = f"import sys, duly.cli; print(*({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 35


@pytest.mark.parametrize("path", COMMANDS)
def test_help_has_an_example_of_its_own_command(path: str) -> None:
    words = path.split()[1:]
    result = CliRunner().invoke(main, [*words, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    found = examples(result.stdout)
    assert found
    assert all(line.startswith("duly") for line in found)
    assert any(line.startswith(path) for line in found)


@pytest.mark.parametrize("path", COMMANDS)
def test_examples_name_what_exists(path: str) -> None:
    """Every word up to the first argument is a command, and has the options used."""
    for line in examples(COMMANDS[path].help or ""):
        command: click.Command = main
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "x", line).split()[1:]
        while words and isinstance(command, click.Group):
            if words[0].startswith("-"):
                break
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {name for each in command.params for name in each.opts} | {"--help", "-h"}
        used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known, line


@pytest.mark.parametrize("path", COMMANDS)
def test_commands_say_what_they_do_in_one_sentence(path: str) -> None:
    first = (COMMANDS[path].help or "").strip().split("\n\n")[0]
    assert first.endswith(".")
    assert first[0].isupper()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_has_a_sentence(path: str) -> None:
    options = [param for param in COMMANDS[path].params if isinstance(param, click.Option)]
    for option in options:
        sentence = re.sub(r"  \[.*\]$", "", option.help or "")
        assert sentence.endswith((".", ".)")), (path, option.opts, sentence)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_argument_is_in_the_usage(path: str) -> None:
    """Arguments have no help text, so the usage line must at least show them."""
    shown = CliRunner().invoke(main, [*path.split()[1:], "--help"]).stdout.split("\n\n")[0]
    for param in COMMANDS[path].params:
        if isinstance(param, click.Argument):
            assert param.make_metavar(click.Context(COMMANDS[path])).strip("[].") in shown


def test_the_long_and_the_short_help_are_the_same() -> None:
    assert CliRunner().invoke(main, ["-h"]).stdout == CliRunner().invoke(main, ["--help"]).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_DULY_COMPLETE" in result.stdout


def test_completion_of_an_unknown_shell() -> None:
    result = CliRunner().invoke(main, ["completion", "tcsh"])
    assert result.exit_code == 2
