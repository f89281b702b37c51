"""`duly schema`: manage the database schema out of band."""

from __future__ import annotations

import click

from duly.cli.failures import explain_failures

_url = click.argument("url")
_namespace = click.option("--namespace", help="PostgreSQL schema, or table prefix in SQLite.")


@click.group()
def schema() -> None:
    """Print, create, upgrade or check the database schema.

    Duly applies its migrations when it starts. With skip_schema_init=True it runs no DDL; use these
    commands instead.

    \b
    Examples:
      duly schema print postgresql://
      duly schema init sqlite:///duly.db
      duly schema check postgresql://app@db/app --namespace billing
    """


@schema.command("print")
@_url
@_namespace
@explain_failures
def print_(url: str, namespace: str | None) -> None:
    """Print the statements for the database of URL, without connecting.

    \b
    Examples:
      duly schema print postgresql:// --namespace billing
    """
    from duly.stores.schema_commands import print_schema

    click.echo(print_schema(url, namespace))


@schema.command("init")
@_url
@_namespace
@explain_failures
def init(url: str, namespace: str | None) -> None:
    """Create the schema or bring it up to date; repeating it is safe.

    \b
    Examples:
      duly schema init sqlite:///duly.db
    """
    _upgrade(url, namespace)


@schema.command("upgrade")
@_url
@_namespace
@explain_failures
def upgrade(url: str, namespace: str | None) -> None:
    """Apply the missing migrations.

    \b
    Examples:
      duly schema upgrade postgresql://app@db/app
    """
    _upgrade(url, namespace)


@schema.command("check")
@_url
@_namespace
@explain_failures
def check(url: str, namespace: str | None) -> None:
    """Check whether this release can work on the database; exit code 3 if not.

    \b
    Examples:
      duly schema check postgresql://app@db/app
    """
    from duly.stores.schema_commands import check_schema

    click.echo(f"schema version {check_schema(url, namespace)}: fine")


def _upgrade(url: str, namespace: str | None) -> None:
    from duly.stores.schema_commands import upgrade_schema

    steps = upgrade_schema(url, namespace)
    for step in steps:
        click.echo(f"applied {step}")
    if not steps:
        click.echo("nothing to do, the schema is up to date")
