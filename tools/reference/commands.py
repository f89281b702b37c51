"""Generate the list of `duly` commands with their help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from duly.cli import main

_WIDTH = 96


def every_command() -> str:
    """Return a section for each command, in order."""
    return "\n".join(_section(path, command) for path, command in commands())


def commands(
    command: click.Command = main, path: tuple[str, ...] = ("duly",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and its subcommands in order, each with the words that call it."""
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
