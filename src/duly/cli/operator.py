"""`duly operator`: who may sign in to the dashboard."""

from __future__ import annotations

import sys
from typing import cast

import click

from duly.cli.failures import explain_failures


@click.group()
def operator() -> None:
    """Name the people who may sign in to the dashboard.

    They are in the setting DULY_OPERATORS, as `name:role:hash`, separated by commas. A viewer
    looks; an operator looks and steps in. No database is needed.

    \b
    Examples:
      duly operator hash ada
    """


@operator.command("hash")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(("operator", "viewer")),
    default="operator",
    show_default=True,
    help="Who looks and steps in, or only looks.",
)
@explain_failures
def hash_(name: str, role: str) -> None:
    """Ask for a password, unseen, and print the setting that lets NAME in with it.

    The password is asked for twice; without a terminal it is the first line of standard input. It
    has at least 8 characters and is kept nowhere: the setting holds a scrypt hash of it. Where
    there is somebody already, join what follows the = by a comma. To change a password, put the
    new hash in the place of the old one and start the server again: sessions that began with the
    old one end.

    \b
    Examples:
      duly operator hash ada
      duly operator hash vic --role viewer
      duly operator hash ada < password-file
    """
    # scrypt and the server's parts are for whoever signs in, not for every command.
    from duly.web.operators.accounts import Operator, Role, hash_password

    checked = Operator(name, cast(Role, role))
    if "," in name or ":" in name:
        raise click.UsageError(f"NAME is {name!r}; it may hold neither a comma nor a colon")
    click.echo(f"DULY_OPERATORS={checked.name}:{checked.role}:{hash_password(_password())}")


def _password() -> str:
    if sys.stdin.isatty():
        found: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        found = sys.stdin.readline().rstrip("\r\n")
    if not found:
        raise click.UsageError("the password is empty; type one, or send it to standard input")
    return found
