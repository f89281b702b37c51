"""`duly locks`: list held locks, and release one whose owner is gone."""

from __future__ import annotations

import click

from duly.cli.output import print_json, print_table, say
from duly.cli.target import Target, confirm, limit_option, on_database, yes_option
from duly.operate.admin import Admin
from duly.operate.job_views import LockView

_LOCKS = {
    "lock": lambda view: view.name,
    "owner": lambda view: view.owner,
    "fence": lambda view: view.fence,
    "until": lambda view: view.until_at,
}


@click.group()
def locks() -> None:
    """List named locks, and release one whose owner is gone.

    \b
    Examples:
      duly locks list
      duly locks release nightly --yes
    """


@locks.command("list")
@click.option("--after", default="", metavar="NAME", help="Continue after this name.")
@limit_option
@on_database
def list_(target: Target, after: str, limit: int) -> None:
    """List the held locks.

    \b
    Examples:
      duly locks list
    """

    async def look(admin: Admin) -> list[LockView]:
        return await admin.locks(after=after, limit=limit)

    found = target.ask(look)
    if target.as_json:
        print_json({"locks": found, "next": found[-1].name if len(found) == limit else None})
    else:
        print_table(found, _LOCKS, "no lock is held")


@locks.command("release")
@click.argument("name")
@yes_option
@on_database
def release(target: Target, name: str, yes: bool) -> None:
    """Release a lock held by another owner; its fence rejects the owner's late writes.

    \b
    Examples:
      duly locks release nightly --yes
    """
    confirm(f"Release lock {name}? Its owner may still be working.", is_sure=yes)
    lock = target.ask(lambda admin: admin.release_lock(name))
    if target.as_json:
        print_json({"lock": lock})
    else:
        say(f"lock {lock.name} of {lock.owner} is released")
