"""The command line: one file per command group, and the only printer.

Exit codes: 0 done, 1 failed, 2 the input is wrong (the message says where and what is allowed).
"""

import click

from duly.cli.demo import demo
from duly.cli.explain import explain
from duly.cli.run import run
from duly.cli.schema import schema
from duly.cli.tick import tick

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="duly", prog_name="duly")
def main() -> None:
    """Duly: a scheduler for applications with many users.

    \b
    Start here:
      duly explain "0 9 * * MON" --tz Europe/Berlin
      duly demo
      duly run --help
    """


main.add_command(explain)
main.add_command(demo)
main.add_command(run)
main.add_command(schema)
main.add_command(tick)
