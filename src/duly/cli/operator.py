"""`duly operator`: create accounts for the dashboard."""

from __future__ import annotations

import sys
from typing import cast

import click

from duly.cli.failures import explain_failures


@click.group()
def operator() -> None:
    """Create accounts for the dashboard.

    Accounts are in the setting DULY_OPERATORS, as `name:role:hash`, separated by commas. A viewer
    may read; an operator may also act. No database is needed.

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
    help="An operator may act; a viewer may only read.",
)
@explain_failures
def hash_(name: str, role: str) -> None:
    """Ask for a password and print the setting that lets NAME sign in with it.

    The password is asked for twice and not shown; without a terminal it is the first line of
    standard input. It has at least 8 characters and is not stored: the setting holds a scrypt hash
    of it. If the setting exists, append the part after the = with a comma. To change a password,
    replace the hash and restart the server: sessions of the old password end.

    \b
    Examples:
      duly operator hash ada
      duly operator hash vic --role viewer
      duly operator hash ada < password-file
    """
    # Imported late: other commands need neither scrypt nor the server's modules.
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
        raise click.UsageError("the password is empty; type one, or pass it on standard input")
    return found
