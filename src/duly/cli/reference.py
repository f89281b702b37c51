"""The reference page of the command line, written from the commands themselves.

`python -m duly.cli.reference` prints it; a test compares it with docs/reference/cli.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from duly.cli import main

_TOP = """\
# The command line

Written from the commands by `python -m duly.cli.reference`; a test compares the two.

Commands for operators take the database from `--url`, from the variable `DULY_URL`, or from the
application that `--app` names; the last also knows which names of an action's input are secret.
They print tables for people and, with `--json`, one JSON document for programs: names are stable,
instants are ISO-8601. They never show an input, only a redacted preview, and run no DDL.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused or not found; for `health` and `doctor`: something is wrong |
| 2 | the words are wrong; the message says where and what is allowed |
| 3 | the database did not answer, or its schema is not this release's |
"""
_WIDTH = 96


def reference() -> str:
    """The whole page."""
    return "\n".join([_TOP, *(_section(path, command) for path, command in commands())])


def commands(
    command: click.Command = main, path: tuple[str, ...] = ("duly",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below one, in order, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from commands(command.commands[name], (*path, name))


def _section(path: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(
        command,
        info_name=" ".join(path),
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )
    level = "##" if len(path) <= 2 else "###"
    return f"{level} {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
