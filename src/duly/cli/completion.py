"""`duly completion`: print a shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      duly completion bash > ~/.local/share/bash-completion/completions/duly
      duly completion zsh > ~/.zfunc/_duly
      duly completion fish > ~/.config/fish/completions/duly.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "duly", "_DULY_COMPLETE").source())
